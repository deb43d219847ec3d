/* vmm.c - what is the same for all monitors: see vmm.h. */
#include "sandboxd/isolation/microvm/vmm.h"

#include "shared/base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static const uint64_t MIB = 1024ULL * 1024;

static const struct vmm *const VMMS[] = {&vmm_qemu};

const struct vmm *vmm_find(const char *name, struct error *err)
{
    for (size_t i = 0; i < sizeof VMMS / sizeof VMMS[0]; i++) {
        if (text_equal(VMMS[i]->name, name))
            return VMMS[i];
    }
    error_set(err, ERROR_INVALID, "microvm_vmm: \"%.32s\" is none of: qemu", name ? name : "");
    return NULL;
}

bool vmm_argument(struct vmm_command *command, struct error *err, const char *format, ...)
{
    va_list values;
    size_t room = sizeof command->text - command->used;
    va_start(values, format);
    int length = vsnprintf(command->text + command->used, room, format, values);
    va_end(values);
    if (length < 0 || (size_t)length >= room || command->count == VMM_ARGUMENTS_MAX)
        return error_set(err, ERROR_INVALID, "the monitor's command line is too long");
    command->arguments[command->count++] = command->text + command->used;
    command->arguments[command->count] = NULL;
    command->used += (size_t)length + 1;
    return true;
}

bool vmm_memory(const struct vmm *vmm, uint64_t sandbox_bytes, uint64_t *guest_bytes, struct error *err)
{
    if (sandbox_bytes < VMM_SANDBOX_MIN_BYTES)
        return error_set(err, ERROR_INVALID,
                         "memory_mb must be at least %" PRIu64 " with isolation microvm, not %" PRIu64,
                         (uint64_t)VMM_SANDBOX_MIN_BYTES / MIB, sandbox_bytes / MIB);
    *guest_bytes = (sandbox_bytes - vmm->overhead_bytes) / MIB * MIB;
    return true;
}

uint32_t vmm_cpus(uint32_t cpu_milli)
{
    uint32_t cpus = cpu_milli / 1000 + (cpu_milli % 1000 != 0);
    if (cpus < 1)
        return 1;
    return cpus < VMM_CPUS_MAX ? cpus : VMM_CPUS_MAX;
}
