#include "sandboxd/launcher_guest/letter.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char NAME_EXTRA[] = "._-";
static const char *const LEVELS[] = {"gvisor", "microvm", "direct"};

enum {
    ID_MAX = 65534,
    FILES_MIN = 16,
    FILES_MAX = 1048576,
    FILES_DEFAULT = 65536,
    COMMANDS_MAX = 1000,
    OUTPUT_MIN = 65536,
    OUTPUT_MAX = 1 << 30,
    OUTPUT_DEFAULT = 16 << 20
};

/* Every field: where a number lies and what it may be; texts are looked at one by one. */
static const struct number_field {
    const char *name;
    size_t offset;
    bool is_wide; /* 64 bits */
    int64_t least, most;
} NUMBERS[] = {
    {"epoch", offsetof(struct letter, epoch), false, 1, UINT32_MAX},
    {"expires", offsetof(struct letter, expires_s), true, 1, INT64_C(1) << 40},
    {"uid", offsetof(struct letter, uid), false, 1, ID_MAX},
    {"gid", offsetof(struct letter, gid), false, 1, ID_MAX},
    {"open_files", offsetof(struct letter, open_files), false, FILES_MIN, FILES_MAX},
    {"commands", offsetof(struct letter, commands), false, 1, COMMANDS_MAX},
    {"output_bytes", offsetof(struct letter, output_bytes), true, OUTPUT_MIN, OUTPUT_MAX},
};
enum { NUMBER_COUNT = sizeof NUMBERS / sizeof *NUMBERS };

void letter_init(struct letter *letter)
{
    *letter = (struct letter){.epoch = 1,
                              .uid = 1000,
                              .gid = 1000,
                              .open_files = FILES_DEFAULT,
                              .commands = COMMANDS_MAX,
                              .output_bytes = OUTPUT_DEFAULT,
                              .workdir = "/"};
}

void letter_done(struct letter *letter)
{
    key_done(&letter->root);
    sodium_memzero(letter->env, sizeof letter->env);
}

static bool wrong(struct error *err, const char *field, const char *allowed)
{
    return error_set(err, ERROR_INVALID, "guest letter: %s must be %s", field, allowed);
}

/* ---- one field ---- */

static bool is_hostname(const char *text)
{
    if (!text_is_made_of(text, FRONT_LAUNCHER_NAME_BYTES - 1, "-"))
        return false;
    for (const char *c = text; *c; c++) {
        if (*c >= 'A' && *c <= 'Z')
            return false;
    }
    return true;
}

/* As the messages carry a path: absolute, no empty part, "." or "..", nothing a terminal would obey. */
static bool is_path(const char *path)
{
    if (path[0] != '/')
        return false;
    for (const char *part = path + 1; *part;) {
        size_t length = strcspn(part, "/");
        if (length == 0 || (length <= 2 && strspn(part, ".") >= length))
            return false;
        part += length;
        if (*part == '/' && *++part == '\0')
            return false;
    }
    for (const char *c = path; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    }
    return true;
}

static bool is_level(const char *text)
{
    for (size_t i = 0; i < sizeof LEVELS / sizeof *LEVELS; i++) {
        if (text_equal(text, LEVELS[i]))
            return true;
    }
    return false;
}

static bool check_texts(const struct letter *letter, struct error *err)
{
    if (!random_is_id(letter->sandbox, "sbx"))
        return wrong(err, "sandbox", "a sandbox id, sbx_...");
    if (!text_is_made_of(letter->issuer, sizeof letter->issuer - 1, NAME_EXTRA))
        return wrong(err, "issuer", "1..63 letters, digits, dots, dashes or underscores");
    if (!is_level(letter->isolation))
        return wrong(err, "isolation", "gvisor, microvm or direct");
    if (letter->hostname[0] && !is_hostname(letter->hostname))
        return wrong(err, "hostname", "at most 63 of a-z, 0-9 and dashes");
    if (letter->template_name[0] &&
        !text_is_made_of(letter->template_name, sizeof letter->template_name - 1, NAME_EXTRA))
        return wrong(err, "template", "at most 63 letters, digits, dots, dashes or underscores");
    return is_path(letter->workdir) || wrong(err, "workdir", "an absolute path of at most 255 bytes without . and ..");
}

static bool check_numbers(const struct letter *letter, struct error *err)
{
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        const struct number_field *field = &NUMBERS[i];
        int64_t value = 0;
        uint32_t narrow = 0;
        memcpy(field->is_wide ? (void *)&value : (void *)&narrow, (const char *)letter + field->offset,
               field->is_wide ? sizeof value : sizeof narrow);
        value = field->is_wide ? value : (int64_t)narrow;
        bool is_absent = value == 0 && field->offset == offsetof(struct letter, expires_s);
        if (!is_absent && (value < field->least || value > field->most))
            return error_set(err, ERROR_INVALID, "guest letter: %s must be a number, %lld..%lld", field->name,
                             (long long)field->least, (long long)field->most);
    }
    return true;
}

/* ---- reading ---- */

static bool take_number(struct letter *letter, const struct number_field *field, const json_t *value, struct error *err)
{
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < field->least || number > field->most)
        return error_set(err, ERROR_INVALID, "guest letter: %s must be a number, %lld..%lld", field->name,
                         (long long)field->least, (long long)field->most);
    int64_t wide = number;
    uint32_t narrow = (uint32_t)number;
    memcpy((char *)letter + field->offset, field->is_wide ? (const void *)&wide : (const void *)&narrow,
           field->is_wide ? sizeof wide : sizeof narrow);
    return true;
}

static bool take_text(char *to, size_t size, const char *name, const json_t *value, struct error *err)
{
    const char *text = json_string_value(value);
    if (text && strlen(text) == json_string_length(value) && text_copy(to, size, text))
        return true;
    return error_set(err, ERROR_INVALID, "guest letter: %s must be a text of at most %zu bytes", name, size - 1);
}

static bool take_root(struct letter *letter, const json_t *value, struct error *err)
{
    const char *text = json_string_value(value);
    size_t decoded = 0;
    return (text && text_base64url_decode(letter->root.bytes, KEY_BYTES, &decoded, text, strlen(text)) &&
            decoded == KEY_BYTES) ||
           wrong(err, "root", "43 characters of base64url");
}

static bool take_env(struct letter *letter, json_t *value, struct error *err)
{
    const char *name;
    json_t *one;
    if (!json_is_object(value))
        return wrong(err, "env", "an object of texts");
    json_object_foreach (value, name, one) {
        const char *text = json_string_value(one);
        if (!text || strlen(text) != json_string_length(one))
            return wrong(err, "env", "an object of texts without NUL");
        if (!env_add(letter->env, name, text, err))
            return error_prefix(err, "guest letter");
    }
    return true;
}

static bool take_field(struct letter *letter, const char *name, json_t *value, struct error *err)
{
    const struct {
        const char *name;
        char *to;
        size_t size;
    } texts[] = {
        {"sandbox", letter->sandbox, sizeof letter->sandbox},
        {"issuer", letter->issuer, sizeof letter->issuer},
        {"isolation", letter->isolation, sizeof letter->isolation},
        {"hostname", letter->hostname, sizeof letter->hostname},
        {"template", letter->template_name, sizeof letter->template_name},
        {"workdir", letter->workdir, sizeof letter->workdir},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(name, texts[i].name) == 0)
            return take_text(texts[i].to, texts[i].size, name, value, err);
    }
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        if (strcmp(name, NUMBERS[i].name) == 0)
            return take_number(letter, &NUMBERS[i], value, err);
    }
    if (strcmp(name, "root") == 0)
        return take_root(letter, value, err);
    if (strcmp(name, "env") == 0)
        return take_env(letter, value, err);
    return error_set(err, ERROR_INVALID, "guest letter: no field is named \"%.64s\"", name);
}

static bool take_fields(struct letter *letter, json_t *object, struct error *err)
{
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return error_set(err, ERROR_INVALID, "guest letter: it must be one JSON object");
    json_object_foreach (object, name, value) {
        if (!take_field(letter, name, value, err))
            return false;
    }
    if (!json_object_get(object, "root"))
        return wrong(err, "root", "there");
    return check_texts(letter, err);
}

bool letter_parse(const char *text, size_t size, struct letter *letter, struct error *err)
{
    AUTO_LETTER read;
    json_error_t where;
    letter_init(&read);
    json_t *object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (!object) /* not what stands there: it may be the key */
        return error_set(err, ERROR_INVALID, "guest letter: line %d, column %d: not JSON", where.line, where.column);
    bool is_whole = take_fields(&read, object, err);
    json_decref(object);
    if (is_whole)
        *letter = read;
    return is_whole;
}

/* ---- writing ---- */

static json_t *make_env(const char env[static ENV_BYTES])
{
    json_t *object = json_object();
    for (const char *text = env; *text; text += strlen(text) + 1) {
        AUTO_FREE char *name = memory_printf("%.*s", (int)strcspn(text, "="), text);
        json_object_set_new(object, name, json_string(text + strlen(name) + 1));
    }
    return object;
}

static void set_number(json_t *object, const struct letter *letter, const struct number_field *field)
{
    int64_t wide = 0;
    uint32_t narrow = 0;
    memcpy(field->is_wide ? (void *)&wide : (void *)&narrow, (const char *)letter + field->offset,
           field->is_wide ? sizeof wide : sizeof narrow);
    json_int_t value = field->is_wide ? wide : narrow;
    if (value != 0)
        json_object_set_new(object, field->name, json_integer(value));
}

char *letter_format(const struct letter *letter, struct error *err)
{
    char root[TEXT_BASE64URL_LENGTH(KEY_BYTES) + 1];
    if (!env_is_whole(letter->env)) {
        wrong(err, "env", "texts NAME=value");
        return NULL;
    }
    if (!check_texts(letter, err) || !check_numbers(letter, err))
        return NULL;
    text_base64url_encode(root, letter->root.bytes, KEY_BYTES);
    json_t *object = json_pack("{ssssssss}", "sandbox", letter->sandbox, "root", root, "issuer", letter->issuer,
                               "isolation", letter->isolation);
    sodium_memzero(root, sizeof root);
    for (size_t i = 0; i < NUMBER_COUNT; i++)
        set_number(object, letter, &NUMBERS[i]);
    if (letter->hostname[0])
        json_object_set_new(object, "hostname", json_string(letter->hostname));
    if (letter->template_name[0])
        json_object_set_new(object, "template", json_string(letter->template_name));
    json_object_set_new(object, "workdir", json_string(letter->workdir));
    json_object_set_new(object, "env", make_env(letter->env));
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

/* ---- from a descriptor ---- */

static ssize_t read_again(int fd, char *to, size_t size)
{
    ssize_t got;
    do {
        got = read(fd, to, size);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* Of a stream socket a byte at a time: what stands behind the newline is a connection's. */
static ssize_t read_line(int fd, char *to, size_t size)
{
    size_t length = 0;
    while (length < size) {
        ssize_t got = read_again(fd, to + length, 1);
        if (got < 0)
            return -1;
        if (got == 0 || to[length] == '\n')
            break;
        length++;
    }
    return (ssize_t)length;
}

static ssize_t read_all(int fd, char *to, size_t size)
{
    size_t length = 0;
    while (length < size) {
        ssize_t got = read_again(fd, to + length, size - length);
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        length += (size_t)got;
    }
    return (ssize_t)length;
}

static ssize_t read_whole(int fd, char *to, size_t size)
{
    int type = 0;
    socklen_t type_size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) != 0)
        return read_all(fd, to, size);
    return type == SOCK_STREAM ? read_line(fd, to, size) : read_again(fd, to, size);
}

bool letter_read(int fd, struct letter *letter, struct error *err)
{
    enum { ROOM = LETTER_BYTES_MAX + 1 };
    char *text = memory_new(ROOM);
    ssize_t size = read_whole(fd, text, ROOM);
    bool is_read = false;
    if (size < 0)
        error_set_errno(err, ERROR_INVALID, "guest letter: read descriptor %d", fd);
    else if (size > LETTER_BYTES_MAX)
        error_set(err, ERROR_TOO_LARGE, "guest letter: it has more than %d bytes", LETTER_BYTES_MAX);
    else if (size == 0)
        error_set(err, ERROR_INVALID, "guest letter: descriptor %d is empty", fd);
    else
        is_read = letter_parse(text, (size_t)size, letter, err);
    sodium_memzero(text, ROOM);
    free(text);
    return is_read;
}
