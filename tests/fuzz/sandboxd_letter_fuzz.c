/* sandboxd_letter_fuzz.c - the letter that a guest is started with, as any bytes: what is taken is within its bounds,
 * is written as it was read, and comes through a pipe as it does from memory. */
#include "sandboxd/launcher_guest/letter.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_letter(const struct letter *letter)
{
    require(letter->sandbox[0] && letter->issuer[0] && letter->isolation[0] && letter->workdir[0] == '/');
    require(letter->epoch >= 1 && letter->uid >= 1 && letter->uid <= 65534 && letter->gid >= 1 && letter->gid <= 65534);
    require(letter->open_files >= 16 && letter->commands >= 1 && letter->commands <= 1000);
    require(letter->output_bytes >= 65536 && letter->output_bytes <= 1 << 30 && letter->expires_s >= 0);
    require(strlen(letter->hostname) < sizeof letter->hostname && strchr(letter->template_name, '/') == NULL);
    require(env_is_whole(letter->env));
}

static void require_same(const struct letter *a, const struct letter *b)
{
    require(strcmp(a->sandbox, b->sandbox) == 0 && memcmp(&a->root, &b->root, sizeof a->root) == 0);
    require(strcmp(a->workdir, b->workdir) == 0 && memcmp(a->env, b->env, sizeof a->env) == 0);
    require(a->epoch == b->epoch && a->expires_s == b->expires_s && a->output_bytes == b->output_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_LETTER letter = {.epoch = 0}, again = {.epoch = 0}, piped = {.epoch = 0};
    struct error err = {0};
    bool is_read = letter_parse((const char *)data, size, &letter, &err);
    AUTO_FD int fd = fd_sealed_memfd("letter", data, size, NULL);
    require(fd >= 0 && letter_read(fd, &piped, NULL) == (is_read && size <= LETTER_BYTES_MAX));
    if (!is_read) {
        require((err.kind == ERROR_INVALID || err.kind == ERROR_TOO_LARGE) && err.message[0]);
        return 0;
    }
    check_letter(&letter);
    AUTO_FREE char *text = letter_format(&letter, &err);
    require(text != NULL && letter_parse(text, strlen(text), &again, &err));
    require_same(&letter, &again);
    return 0;
}
