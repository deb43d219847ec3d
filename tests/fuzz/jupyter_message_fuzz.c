/* jupyter_message_fuzz.c - what a kernel may send: any parts, and any JSON rightly signed. What is read becomes frames
 * that are each one line of JSON within the bound, of runs that there are. */
#include "sandboxd/helpers/drivers/drivers.h"
#include "sandboxd/helpers/jupyter/message.h"
#include "sandboxd/helpers/jupyter/run.h"

#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char KEY[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
enum { PARTS = 8 };

/* "\0" parts the input; what is missing is empty. */
static size_t split(const uint8_t *data, size_t size, struct message_part *parts)
{
    size_t count = 0;
    while (count < PARTS) {
        const uint8_t *end = size ? memchr(data, '\0', size) : NULL;
        size_t length = end ? (size_t)(end - data) : size;
        parts[count++] = (struct message_part){data, length};
        if (!end)
            break;
        data = end + 1;
        size -= length + 1;
    }
    return count;
}

static void sign(const struct message_part *dictionaries, char *to)
{
    crypto_auth_hmacsha256_state state;
    uint8_t sum[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256_init(&state, (const uint8_t *)KEY, sizeof KEY - 1);
    for (int i = 0; i < 4; i++)
        crypto_auth_hmacsha256_update(&state, dictionaries[i].data, dictionaries[i].size);
    crypto_auth_hmacsha256_final(&state, sum);
    sodium_bin2hex(to, 2 * sizeof sum + 1, sum, sizeof sum);
}

static void check_frames(int fd)
{
    off_t size = lseek(fd, 0, SEEK_CUR);
    char *text = size > 0 ? malloc((size_t)size) : NULL;
    if (size > 0 && (!text || pread(fd, text, (size_t)size, 0) != size || text[size - 1] != '\n'))
        abort();
    for (off_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', (size_t)(size - at));
        size_t length = (size_t)(end - (text + at));
        json_t *frame = json_loadb(text + at, length, JSON_ALLOW_NUL, NULL);
        if (!json_is_object(frame) || json_object_size(frame) != 1 || length >= DRIVER_FRAME_MAX)
            abort();
        json_decref(frame);
        at += (off_t)length + 1;
    }
    free(text);
    if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        abort();
}

static void use(const struct message_part *parts, size_t count, bool is_signed, int fd)
{
    struct message message = {.type = ""};
    struct error err = {0};
    struct frames frames = {.fd = fd};
    struct run run = {.is_active = false};
    if (!message_parse(parts, count, KEY, &message, &err)) {
        if (err.kind == ERROR_NONE || (is_signed && err.kind == ERROR_FORBIDDEN))
            abort();
        return;
    }
    if (!is_signed)
        abort(); /* nobody guesses the signature */
    run_begin(&run, "r", "m");
    run_on_iopub(&run, &message, &frames);
    run_on_reply(&run, &message, &frames);
    run_end(&run, &frames);
    run_on_iopub(&run, &message, &frames);
    run_done(&run);
    message_done(&message);
    check_frames(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    struct message_part given[PARTS] = {{NULL, 0}};
    if (fd < 0)
        fd = memfd_create("frames", MFD_CLOEXEC);
    size_t count = split(data, size, given);
    use(given, count, false, fd);
    char signature[2 * crypto_auth_hmacsha256_BYTES + 1];
    for (int i = 0; i < 4; i++)
        if (given[i].data == NULL)
            given[i] = (struct message_part){"", 0};
    sign(given, signature);
    const struct message_part whole[] = {
        {"topic", 5}, {"<IDS|MSG>", 9}, {signature, sizeof signature - 1}, given[0], given[1], given[2], given[3]};
    use(whole, sizeof whole / sizeof *whole, true, fd);
    return 0;
}
