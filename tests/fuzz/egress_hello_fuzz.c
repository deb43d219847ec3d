/* egress_hello_fuzz.c - a hostile TLS client's first bytes: in pieces or at once, the same name comes out, or none. */
#include "sandboxd/egress/client_hello.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        __builtin_trap();
}

static enum client_hello_state read_in(const struct client_hello_maker *maker, const uint8_t *data, size_t size,
                                       size_t step, char name[static HOST_NAME_BYTES])
{
    struct error err = {0};
    AUTO(client_hello) *hello = client_hello_new(maker);
    enum client_hello_state state = CLIENT_HELLO_MORE;
    for (size_t at = 0; at < size && state == CLIENT_HELLO_MORE; at += step)
        state = client_hello_read(hello, data + at, size - at < step ? size - at : step, &err);
    require((state == CLIENT_HELLO_WRONG) == (err.kind == ERROR_INVALID));
    if (state == CLIENT_HELLO_NAMED)
        strcpy(name, client_hello_name(hello));
    return state;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct client_hello_maker *maker;
    char names[2][HOST_NAME_BYTES] = {"", ""};
    if (maker == NULL)
        maker = client_hello_maker_new(NULL);
    if (maker == NULL || size < 2)
        return 0;
    size_t step = (size_t)data[0] + 1;
    enum client_hello_state whole = read_in(maker, data + 1, size - 1, size, names[0]);
    enum client_hello_state cut = read_in(maker, data + 1, size - 1, step, names[1]);
    require((whole == CLIENT_HELLO_NAMED) == (cut == CLIENT_HELLO_NAMED));
    if (whole == CLIENT_HELLO_NAMED) {
        char again[HOST_NAME_BYTES];
        require(strcmp(names[0], names[1]) == 0);
        require(host_name_read(again, names[0], strlen(names[0])) && strcmp(again, names[0]) == 0);
    }
    return 0;
}
