#include "comm/options.hpp"

#include <algorithm>
#include <cstring>

#include "base/config.hpp"
#include "base/result.hpp"
#include "gpu/gpus.hpp"
#include "transport/fifo.hpp"

namespace tutti {

Options Options::from(const tuttiConfig_t* given) {
    const Config& c = config();
    Options options{std::chrono::milliseconds(c.timeout_ms),
                    std::chrono::milliseconds(c.init_timeout_ms),
                    c.check,
                    c.algorithm,
                    c.transport,
                    "",
                    -1,
                    c.reproducible,
                    c.channels,
                    c.programs,
                    c.blocking,
                    {c.threads},
                    c.zero_cta};
    if (given == nullptr) return options;
    tuttiConfig_t known = TUTTI_CONFIG_INITIALIZER;
    if (given->magic != TUTTI_CONFIG_MAGIC || given->size < offsetof(tuttiConfig_t, timeoutMs))
        fail(tuttiInvalidArgument, "config was not initialized with TUTTI_CONFIG_INITIALIZER");
    std::memcpy(&known, given, std::min(given->size, sizeof known));
    const auto positive = [](const char* field, int value) {
        if (value <= 0) fail(tuttiInvalidArgument, "config.%s is %d; a number above 0 was expected", field, value);
        return std::chrono::milliseconds(value);
    };
    if (known.timeoutMs != TUTTI_UNDEF_INT) options.timeout = positive("timeoutMs", known.timeoutMs);
    if (known.initTimeoutMs != TUTTI_UNDEF_INT) options.init_timeout = positive("initTimeoutMs", known.initTimeoutMs);
    const auto up_to_channels = [](const char* field, int value) {
        if (value < 1 || value > collective_channels)
            fail(tuttiInvalidArgument, "config.%s is %d; a number from 1 to %d was expected", field, value,
                 collective_channels);
        return value;
    };
    const auto set_flag = [](bool& to, const char* field, int value) {
        if (value == TUTTI_UNDEF_INT) return;
        if (value != 0 && value != 1) fail(tuttiInvalidArgument, "config.%s is %d; 0 or 1 was expected", field, value);
        to = value == 1;
    };
    set_flag(options.check, "check", known.check);
    set_flag(options.reproducible, "reproducible", known.reproducible);
    set_flag(options.blocking, "blocking", known.blocking);
    if (known.algorithm != nullptr) options.algorithm = known.algorithm;
    if (known.transport != nullptr) options.transport = known.transport;
    if (known.commName != nullptr) options.name = known.commName;
    if (known.channels != TUTTI_UNDEF_INT) options.channels = up_to_channels("channels", known.channels);
    if (known.threads != TUTTI_UNDEF_INT) options.threads.number = up_to_channels("threads", known.threads);
    if (known.ctaPolicy != TUTTI_UNDEF_INT) {
        if (known.ctaPolicy < TUTTI_CTA_POLICY_DEFAULT || known.ctaPolicy > TUTTI_CTA_POLICY_ZERO)
            fail(tuttiInvalidArgument, "config.ctaPolicy is %d; 0, 1 or 2 was expected", known.ctaPolicy);
        options.zero_cta = known.ctaPolicy == TUTTI_CTA_POLICY_ZERO;
    }
    options.threads.parallel = known.parallel;
    options.threads.context = known.parallelContext;
    if (known.programs != nullptr) options.programs = known.programs;
    if (known.device != TUTTI_UNDEF_INT) {
        if (known.device < TUTTI_DEVICE_CURRENT)
            fail(tuttiInvalidArgument, "config.device is %d; -2, -1 or the number of a CUDA device was expected",
                 known.device);
        options.device = known.device == TUTTI_DEVICE_CURRENT ? gpu::current_device() : known.device;
    }
    return options;
}

}  // namespace tutti
