/* Whatever one end may send to the other: the check must hold every text and size before anything reads them. */
#include "sandboxd/front_launcher/front_launcher.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was accepted may be read as text. */
static void read_accepted(const struct front_launcher_message *message)
{
    size_t length = 0;
    const char *env = message->type == FL_PREPARE ? message->as.prepare.env : message->as.sandbox.env;
    if (message->type == FL_PREPARE || message->type == FL_SANDBOX)
        for (const char *text = env; *text; text += strlen(text) + 1)
            length += strlen(text);
    if (message->type == FL_PREPARE)
        length += strlen(message->as.prepare.id) + strlen(message->as.prepare.hostname) +
                  strlen(message->as.prepare.template_name) + strlen(message->as.prepare.isolation);
    else if (message->type == FL_SANDBOX)
        length += strlen(message->as.sandbox.socket_path) + strlen(message->as.sandbox.storage);
    else if (message->type == FL_NETWORK)
        length += strlen(message->as.network.network.names) + message->as.network.network.net_count;
    else if (message->type == FL_REFUSED)
        length = strlen(message->as.refused.message) + strlen(error_code(message->as.refused.kind));
    if (length > sizeof *message)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    /* On the heap and no longer than what came, so that a read beyond it is seen. */
    size_t count = size - 2;
    struct front_launcher_message *message = calloc(1, sizeof *message);
    if (message == NULL)
        return 0;
    memcpy(message, data + 2, count < sizeof *message ? count : sizeof *message);
    struct error err = {0};
    enum front_launcher_end sender = data[0] & 1 ? FL_FROM_FRONT : FL_FROM_LAUNCHER;
    /* Most of a long message is NULs: a short input may stand for one. */
    if (data[0] & 2 && front_launcher_size(message->type) > count)
        count = front_launcher_size(message->type);
    if (front_launcher_check(message, count, data[1] % 20U, sender, &err))
        read_accepted(message);
    else if (err.kind == ERROR_NONE)
        abort();
    free(message);
    return 0;
}
