/* launcher_init_fuzz.c - hostile packets of an init against the launcher, and of anybody against init. */
#include "sandboxd/launcher_init/launcher_init.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        __builtin_trap();
}

/* What init relies on. */
static void check_become(const struct li_become *become, size_t fds)
{
    size_t length = strnlen(become->hostname, sizeof become->hostname);
    require(length < sizeof become->hostname); /* "": of a guest */
    require(become->uid >= 1 && become->uid <= 65534 && become->gid <= 65534);
    require(become->open_files >= 16 && become->open_files <= 1048576);
    require((size_t)become->volume_count + become->has_letter == fds && fds <= LAUNCHER_INIT_FDS);
    for (size_t i = 0; i < become->volume_count; i++) {
        const char *path = become->volumes[i].path;
        length = strnlen(path, sizeof become->volumes[i].path);
        require(length > 1 && length < sizeof become->volumes[i].path && path[0] == '/' && path[length - 1] != '/');
        require(!strstr(path, "//") && !strstr(path, "/./") && !strstr(path, "/../"));
        require(strcmp(path + length - 2, "/.") != 0 && (length < 3 || strcmp(path + length - 3, "/..") != 0));
    }
}

/* What a keeper relies on: so many texts, one behind the other, and then NULs. */
static void check_guest(const struct li_guest *guest)
{
    size_t at = 0;
    require(guest->argument_count >= 1 && guest->argument_count <= LAUNCHER_INIT_ARGUMENTS);
    require(guest->arguments[0] == '/' && guest->starts_late <= 1);
    for (uint32_t i = 0; i < guest->argument_count; i++) {
        require(at < sizeof guest->arguments);
        at += strnlen(guest->arguments + at, sizeof guest->arguments - at) + 1;
    }
    require(at <= sizeof guest->arguments);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct launcher_init_message message = {0};
    struct error err = {0};
    if (size < 2)
        return 0;
    enum launcher_init_end sender = data[0] & 1 ? LI_FROM_INIT : LI_FROM_LAUNCHER;
    size_t fds = data[1] % 12;
    size_t told = size - 2;
    memcpy(&message, data + 2, told < sizeof message ? told : sizeof message);
    if (data[0] & 2 && launcher_init_size(message.type) > told)
        told = launcher_init_size(message.type); /* most of a long one is NULs: a short input may stand for it */
    if (!launcher_init_check(&message, told, fds, sender, &err)) {
        require(err.kind == ERROR_INVALID && strnlen(err.message, sizeof err.message) < sizeof err.message);
        return 0;
    }
    require(told == launcher_init_size(message.type) && told <= sizeof message);
    require((message.type == LI_BECOME || message.type == LI_GUEST) == (sender == LI_FROM_LAUNCHER));
    if (message.type == LI_BECOME)
        check_become(&message.as.become, fds);
    else
        require(fds == 0);
    if (message.type == LI_GUEST)
        check_guest(&message.as.guest);
    if (message.type == LI_FAILED)
        require(strnlen(message.as.failed.message, ERROR_MESSAGE_BYTES) < ERROR_MESSAGE_BYTES);
    return 0;
}
