#include "sandboxd/templates/tool/message.h"

#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <string.h>
#include <unistd.h>

void message_make_printable(char *text, size_t size)
{
    text[size - 1] = '\0';
    size_t length = strlen(text);
    bool is_utf8 = text_utf8_prefix(text, length) == length;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        bool is_c1 = c == 0xc2 && (unsigned char)text[i + 1] < 0xa0; /* U+0080..9F, two bytes of UTF-8 */
        if (c < 0x20 || c == 0x7f || (c >= 0x80 && !is_utf8) || is_c1)
            text[i] = '?';
        if (is_c1)
            text[++i] = '?';
    }
    memset(text + length, 0, size - length);
}

static bool is_word(const char *text, size_t size)
{
    return strnlen(text, size) < size && text[0] &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.:~_-^") == strlen(text);
}

static bool check_result(struct message_result *result, struct error *err)
{
    static const char *const MANAGERS[] = {"", "dpkg", "apk"};
    struct template_record probe = result->record;
    bool known = false;
    memset(probe.name, 0, sizeof probe.name);
    memcpy(probe.name, "x", 2);
    message_make_printable(result->reference, sizeof result->reference);
    for (size_t i = 0; i < sizeof MANAGERS / sizeof MANAGERS[0]; i++)
        known = known || strncmp(result->package_manager, MANAGERS[i], sizeof result->package_manager) == 0;
    if (!known || result->packages > MESSAGE_PACKAGES_MAX)
        return error_set(err, ERROR_INVALID, "a package manager nobody knows");
    return template_check(&probe, err);
}

bool message_check(struct message *message, struct error *err)
{
    struct message_package *package = &message->as.package;
    switch (message->type) {
    case MESSAGE_PROGRESS:
        return true;
    case MESSAGE_TEXT:
        message_make_printable(message->as.text, sizeof message->as.text);
        return true;
    case MESSAGE_PACKAGE:
        return (is_word(package->name, sizeof package->name) && is_word(package->version, sizeof package->version) &&
                is_word(package->architecture, sizeof package->architecture)) ||
               error_set(err, ERROR_INVALID, "a package's name cannot be");
    case MESSAGE_RESULT:
        return check_result(&message->as.result, err);
    case MESSAGE_FAILED:
        message_make_printable(message->as.failed.message, sizeof message->as.failed.message);
        if ((int)message->as.failed.kind <= ERROR_NONE || message->as.failed.kind >= ERROR_KINDS)
            message->as.failed.kind = ERROR_INTERNAL;
        return true;
    default:
        return error_set(err, ERROR_INVALID, "a message of no known type");
    }
}

void message_send(int channel, const struct message *message)
{
    if (!fd_send_message(channel, message, sizeof *message, NULL, 0, NULL))
        _exit(1);
}
