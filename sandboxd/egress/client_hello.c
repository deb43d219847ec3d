#include "sandboxd/egress/client_hello.h"

#include "shared/base/memory.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

const uint8_t CLIENT_HELLO_ALERT[CLIENT_HELLO_ALERT_BYTES] = {21, 3, 3, 0, 2, 2, 112};

struct client_hello_maker {
    SSL_CTX *context;
};

struct client_hello {
    SSL *tls;
    BIO *input; /* the SSL's */
    size_t size;
    bool was_read;     /* a whole ClientHello came */
    const char *wrong; /* NULL, or why its name cannot be had */
    char name[HOST_NAME_BYTES];
};

/* server_name: a list of one name of the type host_name. */
static const char *take_name(struct client_hello *hello, const uint8_t *data, size_t size)
{
    if (size < 5)
        return "its server_name is broken";
    size_t list = (size_t)(data[0] << 8 | data[1]);
    size_t length = (size_t)(data[3] << 8 | data[4]);
    if (list != size - 2 || data[2] != 0 || length > size - 5)
        return "its server_name is broken";
    if (length != size - 5)
        return "it has more than one server_name";
    if (!host_name_read(hello->name, (const char *)data + 5, length))
        return "its server_name is no name of a host";
    return NULL;
}

/* Ends the handshake in every case: all that was wanted is here. */
static int on_hello(SSL *tls, int *alert, void *context UNUSED)
{
    struct client_hello *hello = SSL_get_app_data(tls);
    const uint8_t *data = NULL;
    size_t size = 0;
    hello->was_read = true;
    if (SSL_client_hello_isv2(tls) || !SSL_client_hello_get0_ext(tls, TLSEXT_TYPE_server_name, &data, &size))
        hello->wrong = "it has no server_name (SNI)";
    else
        hello->wrong = take_name(hello, data, size);
    *alert = SSL_AD_UNRECOGNIZED_NAME;
    return SSL_CLIENT_HELLO_ERROR;
}

struct client_hello_maker *client_hello_maker_new(struct error *err)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL) {
        error_set(err, ERROR_INTERNAL, "OpenSSL: %s", ERR_reason_error_string(ERR_get_error()));
        return NULL;
    }
    SSL_CTX_set_client_hello_cb(context, on_hello, NULL);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    struct client_hello_maker *maker = memory_new(sizeof *maker);
    maker->context = context;
    return maker;
}

void client_hello_maker_free(struct client_hello_maker *maker)
{
    if (maker != NULL)
        SSL_CTX_free(maker->context);
    free(maker);
}

struct client_hello *client_hello_new(const struct client_hello_maker *maker)
{
    struct client_hello *hello = memory_new(sizeof *hello);
    hello->tls = SSL_new(maker->context);
    hello->input = BIO_new(BIO_s_mem());
    BIO *output = BIO_new(BIO_s_null());
    if (hello->tls == NULL || hello->input == NULL || output == NULL)
        abort(); /* no memory: as everywhere */
    SSL_set_bio(hello->tls, hello->input, output);
    SSL_set_app_data(hello->tls, hello);
    SSL_set_accept_state(hello->tls);
    return hello;
}

void client_hello_free(struct client_hello *hello)
{
    if (hello != NULL)
        SSL_free(hello->tls);
    free(hello);
}

enum client_hello_state client_hello_read(struct client_hello *hello, const void *data, size_t size, struct error *err)
{
    hello->size += size;
    if (BIO_write(hello->input, data, (int)size) != (int)size)
        abort();
    ERR_clear_error();
    int result = SSL_do_handshake(hello->tls);
    bool wants_more = result <= 0 && SSL_get_error(hello->tls, result) == SSL_ERROR_WANT_READ;
    ERR_clear_error();
    if (hello->was_read && hello->wrong == NULL)
        return CLIENT_HELLO_NAMED;
    if (!hello->was_read && wants_more && hello->size < CLIENT_HELLO_BYTES)
        return CLIENT_HELLO_MORE;
    error_set(err, ERROR_INVALID, "%s",
              hello->wrong != NULL ? hello->wrong
              : wants_more         ? "its first message is too long"
                                   : "it does not begin as TLS");
    return CLIENT_HELLO_WRONG;
}

const char *client_hello_name(const struct client_hello *hello)
{
    return hello->name;
}
