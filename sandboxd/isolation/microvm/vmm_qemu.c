/* vmm_qemu.c - QEMU's `microvm` machine with the TCG interpreter: slow, but it needs nothing of the host's CPU. No PCI,
 * no graphics, no keyboard, no disk: a serial console to write to, a network card whose only ways are those forwarded
 * to it, and the file system server.
 * Sources: qemu(1); docs/system/i386/microvm.rst; https://virtio-fs.gitlab.io (memory-backend-memfd, share=on). */
#include "sandboxd/isolation/microvm/vmm.h"

#include <inttypes.h>

static const uint64_t MIB = 1024ULL * 1024;

/* `reboot=t`: a machine without keyboard controller ends by a triple fault, which -no-reboot makes an end of QEMU. The
 * time stamp counter: a guest that is interpreted on a busy machine fails to measure it against its timer, and then
 * waits for ever; so it is told, and not to doubt it either. */
#define KERNEL_COMMAND_LINE "console=ttyS0 quiet loglevel=1 reboot=t panic=-1 tsc=reliable random.trust_cpu=on"

/* x86-64-v2 (what Debian and its derivatives may ask for, and more than they do), and a source of random numbers. Not
 * `max`: QEMU 7.2 interprets some of AVX2 and BMI wrongly, so that glibc's strcmp of these finds equal texts different
 * (seen: a request's Range was not known as one). Of a vendor that Linux needs no page table isolation for. */
#define CPU "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+lahf-lm,+rdrand"

static bool describe_machine(const struct vmm_machine *machine, struct vmm_command *command, struct error *err)
{
    const uint64_t mib = machine->memory_bytes / MIB;
    return vmm_argument(command, err, "-nodefaults") && vmm_argument(command, err, "-no-user-config") &&
           vmm_argument(command, err, "-nographic") && vmm_argument(command, err, "-no-reboot") &&
           vmm_argument(command, err, "-sandbox") &&
           vmm_argument(command, err, "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny") &&
           vmm_argument(command, err, "-machine") &&
           vmm_argument(command, err,
                        "microvm,pit=on,pic=on,rtc=on,isa-serial=on,acpi=on,usb=off,memory-backend=memory") &&
           vmm_argument(command, err, "-accel") && vmm_argument(command, err, "tcg,tb-size=32,thread=multi") &&
           vmm_argument(command, err, "-cpu") && vmm_argument(command, err, CPU) &&
           vmm_argument(command, err, "-smp") && vmm_argument(command, err, "%" PRIu32, machine->cpus) &&
           vmm_argument(command, err, "-m") && vmm_argument(command, err, "%" PRIu64 "M", mib) &&
           vmm_argument(command, err, "-object") &&
           vmm_argument(command, err, "memory-backend-memfd,id=memory,share=on,size=%" PRIu64 "M", mib);
}

static bool describe_devices(const struct vmm_machine *machine, struct vmm_command *command, struct error *err)
{
    return vmm_argument(command, err, "-global") && vmm_argument(command, err, "virtio-mmio.force-legacy=false") &&
           vmm_argument(command, err, "-chardev") &&
           vmm_argument(command, err, "socket,id=files,fd=%d", machine->root_server) &&
           vmm_argument(command, err, "-device") &&
           vmm_argument(command, err, "vhost-user-fs-device,chardev=files,tag=" VMM_ROOT_TAG ",queue-size=128") &&
           vmm_argument(command, err, "-netdev") &&
           vmm_argument(command, err,
                        "user,id=network,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:%" PRIu16 "-%s:%" PRIu16,
                        machine->host_port, VMM_GUEST_ADDRESS, machine->guest_port) &&
           vmm_argument(command, err, "-device") && vmm_argument(command, err, "virtio-net-device,netdev=network") &&
           vmm_argument(command, err, "-chardev") &&
           vmm_argument(command, err, "file,id=console,path=/proc/self/fd/%d", machine->console) &&
           vmm_argument(command, err, "-serial") && vmm_argument(command, err, "chardev:console");
}

static bool describe(const struct vmm_machine *machine, const char *program, struct vmm_command *command,
                     struct error *err)
{
    *command = (struct vmm_command){0};
    return vmm_argument(command, err, "%s", program) && describe_machine(machine, command, err) &&
           describe_devices(machine, command, err) && vmm_argument(command, err, "-kernel") &&
           vmm_argument(command, err, "/proc/self/fd/%d", machine->kernel) && vmm_argument(command, err, "-initrd") &&
           vmm_argument(command, err, "/proc/self/fd/%d", machine->initramfs) &&
           vmm_argument(command, err, "-append") &&
           (machine->tsc_khz
                ? vmm_argument(command, err, KERNEL_COMMAND_LINE " tsc_early_khz=%" PRIu32, machine->tsc_khz)
                : vmm_argument(command, err, KERNEL_COMMAND_LINE));
}

/* Beyond the guest's memory: 32 MiB of translated code, QEMU and its libraries, and the file server with what it
 * has open. Measured: 75 MiB with one CPU (DESIGN.md). */
const struct vmm vmm_qemu = {.name = "qemu",
                             .program = "/usr/bin/qemu-system-x86_64",
                             .package = "qemu-system-x86",
                             .overhead_bytes = 128ULL * 1024 * 1024,
                             .describe = describe};
