// Emulated GPUs, as C: device.cpp is compiled as torch wants it, gpus.cpp as Tutti does.
#pragma once

#include <stddef.h>

#define EMULATED extern "C" __attribute__((visibility("default")))

EMULATED int emulated_devices();
EMULATED void* emulated_stream(int device);
EMULATED void emulated_synchronize(void* stream);
EMULATED void emulated_call(int device, void (*work)(void*), void* argument, void* stream);
EMULATED void* emulated_allocate(int device, size_t bytes);
EMULATED void emulated_free(int device, void* memory);
