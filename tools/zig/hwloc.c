// What hwloc's archive needs in order to be a part of a shared library that runs without libudev.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>

#define HIDDEN __attribute__((visibility("hidden")))

// The archive is compiled for programs, into which the linker copies libc's variables. A library can't have such
// copies, so tools/zig/setup gives these names to those variables in it. They hold what libc's do when the library is
// loaded.
HIDDEN FILE* hwloc_stdout;
HIDDEN FILE* hwloc_stderr;
HIDDEN char* hwloc_program_invocation_name;

__attribute__((constructor)) static void set_variables(void) {
    hwloc_stdout = stdout;
    hwloc_stderr = stderr;
    hwloc_program_invocation_name = program_invocation_name;
}

// There is no udev: hwloc reads /run/udev itself then.
struct udev;
struct udev_device;

HIDDEN struct udev* udev_new(void) {
    return NULL;
}

HIDDEN struct udev* udev_unref(struct udev* udev) {
    (void)udev;
    return NULL;
}

HIDDEN struct udev_device* udev_device_new_from_subsystem_sysname(struct udev* udev, const char* subsystem,
                                                                  const char* name) {
    (void)udev, (void)subsystem, (void)name;
    return NULL;
}

HIDDEN struct udev_device* udev_device_unref(struct udev_device* device) {
    (void)device;
    return NULL;
}

HIDDEN const char* udev_device_get_property_value(struct udev_device* device, const char* key) {
    (void)device, (void)key;
    return NULL;
}
