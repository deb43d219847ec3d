/* front_init_fuzz.c - hostile packets and hostile command memories against the codec between front and init. */
#include "sandboxd/front_init/front_init.h"
#include "shared/base/fd.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        __builtin_trap();
}

static void fuzz_packet(const uint8_t *data, size_t size)
{
    struct front_init_message message = {0};
    struct error err = {0};
    if (size < 2)
        return;
    memcpy(&message, data + 2, size - 2 < sizeof message ? size - 2 : sizeof message);
    enum front_init_end sender = data[0] & 1 ? FI_FROM_INIT : FI_FROM_FRONT;
    if (!front_init_check(&message, size - 2, data[1] % 8, sender, &err)) {
        require(err.kind == ERROR_INVALID && strnlen(err.message, sizeof err.message) < sizeof err.message);
        return;
    }
    require(size - 2 == front_init_size(message.type));
    require((message.type < FI_WELCOME) == (sender == FI_FROM_FRONT));
    if (message.type == FI_START && message.as.start.zygote != 0)
        require(data[1] % 8 == FI_START_FDS && message.as.start.with_program && !message.as.start.terminal &&
                !message.as.start.as_root && message.as.start.zygote <= FRONT_INIT_ZYGOTES);
    if (message.type == FI_DIAL)
        require(message.as.dial.port != 0 ? message.as.dial.family == 4 || message.as.dial.family == 6
                                          : message.as.dial.family == FI_FAMILY_GUEST);
    if (message.type == FI_STARTED)
        require(strlen(message.as.started.id) < FRONT_INIT_ID_BYTES && strlen(message.as.started.title) < 256);
}

static void fuzz_command(const uint8_t *data, size_t size)
{
    struct front_init_command command, again;
    struct error err = {0};
    AUTO_FREE void *memory = NULL, *memory_again = NULL;
    AUTO_FD int fd = fd_sealed_memfd("fuzz", data, size, &err);
    if (fd < 0 || !front_init_command_read(fd, &command, &memory, &err))
        return;
    /* What was read can be sealed, and reads the same. */
    AUTO_FD int second = front_init_command_seal(&command, &err);
    require(second >= 0 && front_init_command_read(second, &again, &memory_again, &err));
    require(strcmp(command.cwd, again.cwd) == 0 && command.cwd[0] == '/' && command.arguments[0] != NULL);
    for (size_t i = 0; command.arguments[i] || again.arguments[i]; i++)
        require(command.arguments[i] && again.arguments[i] && !strcmp(command.arguments[i], again.arguments[i]));
    for (size_t i = 0; command.variables[i] || again.variables[i]; i++)
        require(command.variables[i] && again.variables[i] && !strcmp(command.variables[i], again.variables[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] & 0x80)
        fuzz_command(data + 1, size - 1);
    else
        fuzz_packet(data, size);
    return 0;
}
