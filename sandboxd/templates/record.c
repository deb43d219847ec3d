#include "sandboxd/templates/record.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { MAGIC = 0x504d4554 /* TEMP */, VERSION = 1, STAMP_DIGITS = 16, NAME_MAX_LENGTH = 40, ID_MAX = 65535 };

/* No byte of it is padding, for all are summed. */
_Static_assert(offsetof(struct template_record, created_ms) ==
                       offsetof(struct template_record, reserved) + sizeof(uint32_t) &&
                   offsetof(struct template_record, checksum) ==
                       offsetof(struct template_record, entrypoint) + sizeof((struct template_record){0}.entrypoint) &&
                   sizeof(struct template_record) == offsetof(struct template_record, checksum) + sizeof(uint64_t),
               "struct template_record has padding");

/* --- names --- */

static bool has_stamp(const char *text, size_t length)
{
    if (length <= STAMP_DIGITS || text[length - STAMP_DIGITS - 1] != '-')
        return false;
    return strspn(text + length - STAMP_DIGITS, "0123456789abcdef") == STAMP_DIGITS;
}

bool template_is_name(const char *text)
{
    size_t length = strnlen(text, NAME_MAX_LENGTH + 1);
    if (length == 0 || length > NAME_MAX_LENGTH || text[0] < 'a' || text[0] > 'z' || has_stamp(text, length))
        return false;
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789._-") == length && strcmp(text, "auto") != 0 &&
           strcmp(text, "snapshot") != 0;
}

bool template_is_version(const char *text, char name[static FRONT_LAUNCHER_NAME_BYTES])
{
    size_t length = strnlen(text, FRONT_LAUNCHER_NAME_BYTES);
    char head[FRONT_LAUNCHER_NAME_BYTES] = "";
    if (length == FRONT_LAUNCHER_NAME_BYTES || !has_stamp(text, length))
        return false;
    memcpy(head, text, length - STAMP_DIGITS - 1);
    if (!template_is_name(head))
        return false;
    memcpy(name, head, sizeof head);
    return true;
}

/* --- what a record may hold --- */

/* Ended, and nothing behind its end. */
static bool is_padded(const char *field, size_t size)
{
    size_t length = strnlen(field, size);
    for (size_t i = length; i < size; i++) {
        if (field[i] != '\0')
            return false;
    }
    return length < size;
}

static bool is_printable(const char *field, size_t size)
{
    if (!is_padded(field, size))
        return false;
    for (const unsigned char *at = (const unsigned char *)field; *at; at++) {
        bool is_c1 = at[0] == 0xc2 && at[1] < 0xa0; /* U+0080..9F */
        if (*at < 0x20 || *at == 0x7f || is_c1)
            return false;
    }
    return text_utf8_prefix(field, strlen(field)) == strlen(field);
}

/* Absolute, and every part of it a name. */
static bool is_path(const char *path)
{
    if (path[0] != '/')
        return false;
    for (const char *part = path; *part; part += strcspn(part, "/")) {
        part++;
        size_t length = strcspn(part, "/");
        bool is_whole_root = part[0] == '\0' && part == path + 1;
        bool is_dots = (length == 1 && part[0] == '.') || (length == 2 && part[0] == '.' && part[1] == '.');
        if ((length == 0 && !is_whole_root) || is_dots)
            return false;
    }
    return true;
}

static bool is_digest(const char *digest)
{
    if (digest[0] == '\0')
        return true;
    return text_starts_with(digest, "sha256:") && strlen(digest) == 71 && strspn(digest + 7, "0123456789abcdef") == 64;
}

/* Texts each ended by NUL, ended by an empty one and NULs. */
static bool is_list(const char *field, size_t size)
{
    size_t at = 0;
    while (at < size && field[at]) {
        size_t length = strnlen(field + at, size - at);
        if (at + length + 1 >= size || text_utf8_prefix(field + at, length) != length)
            return false;
        at += length + 1;
    }
    while (at < size && field[at] == '\0')
        at++;
    return at == size;
}

bool template_check(const struct template_record *record, struct error *err)
{
    const char *wrong = NULL;
    if (record->kind != TEMPLATE_SKELETON && record->kind != TEMPLATE_WHOLE)
        wrong = "kind";
    else if (record->uid == 0 || record->uid > ID_MAX || record->gid == 0 || record->gid > ID_MAX)
        wrong = "uid or gid (1..65535)";
    else if (record->reserved != 0 || record->created_ms < 0)
        wrong = "created_ms";
    else if (!is_padded(record->name, sizeof record->name) || !template_is_name(record->name))
        wrong = "name";
    else if (!is_padded(record->digest, sizeof record->digest) || !is_digest(record->digest))
        wrong = "digest";
    else if (!is_printable(record->source, sizeof record->source))
        wrong = "source";
    else if (!is_printable(record->workdir, sizeof record->workdir) || !is_path(record->workdir))
        wrong = "workdir (an absolute path without \".\" and \"..\")";
    else if (!env_is_whole(record->env))
        wrong = "env";
    else if (!is_list(record->entrypoint, sizeof record->entrypoint))
        wrong = "entrypoint";
    return wrong == NULL || error_set(err, ERROR_INVALID, "the template's record: its %s cannot be", wrong);
}

/* --- the file --- */

static uint64_t checksum(const struct template_record *record)
{
    uint64_t hash = 14695981039346656037ULL; /* FNV-1a: against accidents, for the folder is root's alone */
    const uint8_t *bytes = (const uint8_t *)record;
    for (size_t i = 0; i < offsetof(struct template_record, checksum); i++)
        hash = (hash ^ bytes[i]) * 1099511628211ULL;
    return hash;
}

bool template_write(const char *folder, struct template_record *record, struct error *err)
{
    if (!template_check(record, err))
        return false;
    record->magic = MAGIC;
    record->version = VERSION;
    record->checksum = checksum(record);
    AUTO_FREE char *path = memory_printf("%s/template", folder);
    return fd_write_file(path, 0600, record, sizeof *record, err);
}

bool template_record_read(const char *path, struct template_record *record, struct error *err)
{
    size_t size = 0;
    struct error why = {0};
    AUTO_FREE char *bytes = fd_read_file(path, sizeof *record, &size, &why);
    if (bytes == NULL && why.kind == ERROR_NOT_FOUND)
        return error_set(err, ERROR_NOT_FOUND, "%s is not there", path);
    struct template_record read = {0};
    if (bytes && size == sizeof read)
        memcpy(&read, bytes, sizeof read);
    if (read.magic != MAGIC || read.version != VERSION || read.checksum != checksum(&read) ||
        !template_check(&read, NULL))
        return error_set(err, ERROR_INVALID, "%s is damaged", path);
    *record = read;
    return true;
}
