/* files_entry.c - written by hand: a list has a hundred thousand of them. */
#include "sandboxd/dialects/native/files/files_entry.h"

#include "sandboxd/dialects/native/events.h"
#include "sandboxd/dialects/native/files/conditions.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

static void append_base64(struct text *to, struct files_bytes value)
{
    AUTO_FREE char *encoded = memory_new((value.size + 2) / 3 * 4 + 1);
    size_t length = text_base64_encode(encoded, value.data, value.size);
    text_append(to, encoded, length);
}

/* Valid runs as they are, each other byte as U+FFFD. */
static void append_shown(struct text *to, struct files_bytes value)
{
    for (size_t at = 0; at < value.size;) {
        size_t valid = text_utf8_prefix(value.data + at, value.size - at);
        events_append_escaped(to, value.data + at, valid);
        at += valid;
        if (at == value.size)
            break;
        text_append_string(to, "\xef\xbf\xbd");
        at++;
    }
}

void files_entry_quoted(struct text *to, struct files_bytes value)
{
    text_append(to, "\"", 1);
    append_shown(to, value);
    text_append(to, "\"", 1);
}

void files_entry_text(struct text *to, const char *name, struct files_bytes value)
{
    text_append_format(to, "\"%s\":", name);
    files_entry_quoted(to, value);
    if (text_utf8_prefix(value.data, value.size) == value.size)
        return;
    text_append_format(to, ",\"%s_b64\":\"", name);
    append_base64(to, value);
    text_append(to, "\"", 1);
}

const char *files_entry_type(enum files_type type)
{
    static const char *const NAMES[] = {[FILES_REGULAR] = "file",
                                        [FILES_FOLDER] = "folder",
                                        [FILES_SYMLINK] = "symlink",
                                        [FILES_FIFO] = "fifo",
                                        [FILES_SOCKET] = "socket",
                                        [FILES_CHAR_DEVICE] = "char_device",
                                        [FILES_BLOCK_DEVICE] = "block_device"};
    return NAMES[type];
}

static struct files_bytes last_part(struct files_bytes path)
{
    size_t at = path.size;
    while (at > 0 && path.data[at - 1] != '/')
        at--;
    return (struct files_bytes){path.data + at, path.size - at};
}

static int64_t milliseconds(int64_t ns)
{
    return ns / 1000000 - (ns % 1000000 < 0);
}

static void append_times(struct text *to, const struct files_record *entry)
{
    char text[CLOCK_TEXT_BYTES];
    clock_format(text, milliseconds(entry->version.mtime_ns));
    text_append_format(to, ",\"mtime\":\"%s\",\"mtime_ns\":%lld", text, (long long)entry->version.mtime_ns);
    clock_format(text, milliseconds(entry->version.ctime_ns));
    text_append_format(to, ",\"ctime\":\"%s\"", text);
}

static unsigned long long bounded(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : value;
}

/* A number without a name has no field. */
static void append_user(struct text *to, const char *field, struct files_bytes name)
{
    if (name.size == 0)
        return;
    text_append(to, ",", 1);
    files_entry_text(to, field, name);
}

void files_entry_fields(struct text *to, const struct files_record *entry, const char *path)
{
    struct files_bytes shown = path ? (struct files_bytes){path, strlen(path)} : entry->path, name = last_part(shown);
    if (name.size > 0) {
        files_entry_text(to, "name", name);
        text_append(to, ",", 1);
    }
    files_entry_text(to, "path", shown);
    text_append_format(to, ",\"type\":\"%s\",\"size\":%llu,\"mode\":\"%04o\",\"uid\":%u,\"gid\":%u,\"links\":%llu",
                       files_entry_type(entry->type), bounded(entry->version.size), entry->mode, entry->uid, entry->gid,
                       bounded(entry->links));
    append_user(to, "owner", entry->owner);
    append_user(to, "group", entry->group);
    append_times(to, entry);
    if (entry->type == FILES_REGULAR) {
        char tag[CONDITIONS_ETAG_BYTES];
        conditions_etag(tag, &entry->version);
        text_append_string(to, ",\"etag\":\"");
        events_append_escaped(to, tag, strlen(tag));
        text_append(to, "\"", 1);
    }
    if (entry->type == FILES_SYMLINK) {
        text_append(to, ",", 1);
        files_entry_text(to, "target", entry->target);
    }
}

void files_entry_match(struct text *to, const struct files_record *match)
{
    files_entry_text(to, "path", match->path);
    text_append_format(to, ",\"line\":%llu,\"column\":%llu,", bounded(match->line), bounded(match->column));
    files_entry_text(to, "text", match->text);
    if (match->is_cut)
        text_append_string(to, ",\"cut\":true");
}
