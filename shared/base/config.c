#include "shared/base/config.h"

#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <netinet/in.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 1024 * 1024, NAME_BYTES = 64, SUGGESTIONS = 3 };

/* What one row came to so far. Nothing reaches the program's struct before all sources were read. */
struct value {
    char *text;
    int64_t number;
    bool on;
};

struct reading {
    const struct config_row *rows;
    size_t row_count;
    struct value *values; /* one a row */
};

static void reading_cleanup(struct reading *reading)
{
    for (size_t i = 0; reading->values && i < reading->row_count; i++)
        free(reading->values[i].text);
    free(reading->values);
}

/* --- one value --- */

/* `source` says where it stood: "PARLEY_PORT", "--port", "/x/config.json: port". The value itself is not repeated in
 * the message, for it may be a secret that went astray. */
static bool wrong(const struct config_row *row, const char *source, struct error *err)
{
    if (row->type == CONFIG_NUMBER)
        return error_set(err, ERROR_INVALID, "%s must be a whole number from %" PRId64 " to %" PRId64, source, row->min,
                         row->max);
    return error_set(err, ERROR_INVALID, "%s must be %s", source,
                     row->type == CONFIG_SWITCH ? "true or false" : "text");
}

static bool set_number(const struct config_row *row, struct value *value, int64_t number, const char *source,
                       struct error *err)
{
    if (number < row->min || number > row->max)
        return wrong(row, source, err);
    value->number = number;
    return true;
}

static bool set_from_text(const struct config_row *row, struct value *value, const char *text, const char *source,
                          struct error *err)
{
    if (row->type == CONFIG_TEXT) {
        free(value->text);
        value->text = memory_string(text);
        return true;
    }
    if (row->type == CONFIG_SWITCH) {
        bool on = text_equal(text, "true") || text_equal(text, "1");
        if (!on && !text_equal(text, "false") && !text_equal(text, "0"))
            return wrong(row, source, err);
        value->on = on;
        return true;
    }
    bool negative = text[0] == '-';
    const char *digits = text + negative;
    uint64_t size = 0;
    if (!text_parse_u64(digits, strlen(digits), INT64_MAX, &size))
        return wrong(row, source, err);
    return set_number(row, value, negative ? -(int64_t)size : (int64_t)size, source, err);
}

static bool set_from_json(const struct config_row *row, struct value *value, const json_t *json, const char *source,
                          struct error *err)
{
    if (row->type == CONFIG_TEXT && json_is_string(json))
        return set_from_text(row, value, json_string_value(json), source, err);
    if (row->type == CONFIG_NUMBER && json_is_integer(json))
        return set_number(row, value, json_integer_value(json), source, err);
    if (row->type == CONFIG_SWITCH && json_is_boolean(json)) {
        value->on = json_is_true(json);
        return true;
    }
    return wrong(row, source, err);
}

/* --- names --- */

/* Levenshtein's distance, of the first NAME_BYTES characters. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[NAME_BYTES + 1];
    size_t a_length = strnlen(a, NAME_BYTES);
    size_t b_length = strnlen(b, NAME_BYTES);
    for (unsigned j = 0; j <= b_length; j++)
        row[j] = j;
    for (unsigned i = 1; i <= a_length; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            unsigned replaced = diagonal + (a[i - 1] != b[j - 1]);
            unsigned inserted = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < inserted ? replaced : inserted;
        }
    }
    return row[b_length];
}

/* The known names nearest to `unknown`, nearest first, each after `mark`: "--port, --host, --root". */
static void suggest(const struct reading *reading, const char *unknown, const char *mark, struct text *to)
{
    size_t taken[SUGGESTIONS];
    for (size_t count = 0; count < SUGGESTIONS && count < reading->row_count; count++) {
        size_t best = reading->row_count;
        unsigned best_distance = UINT32_MAX;
        for (size_t i = 0; i < reading->row_count; i++) {
            bool used = false;
            for (size_t j = 0; j < count; j++)
                used = used || taken[j] == i;
            unsigned here = distance(unknown, reading->rows[i].name);
            if (!used && here < best_distance) {
                best = i;
                best_distance = here;
            }
        }
        taken[count] = best;
        text_append_format(to, "%s%s%s", count ? ", " : "", mark, reading->rows[best].name);
    }
}

static bool unknown_name(const struct reading *reading, const char *name, const char *mark, const char *source,
                         struct error *err)
{
    AUTO_TEXT nearest = {0};
    suggest(reading, name, mark, &nearest);
    return error_set(err, ERROR_INVALID, "%s%s%.64s is not a setting; the nearest are: %s", source, mark, name,
                     nearest.data ? nearest.data : "none");
}

/* The row of a name of `length` characters in which '-' stands for '_' too; row_count when there is none. */
static size_t row_of(const struct reading *reading, const char *name, size_t length, bool dashes)
{
    for (size_t i = 0; i < reading->row_count; i++) {
        const char *known = reading->rows[i].name;
        size_t at = 0;
        while (at < length && (known[at] == name[at] || (dashes && known[at] == '_' && name[at] == '-')))
            at++;
        if (at == length && known[at] == '\0')
            return i;
    }
    return reading->row_count;
}

static bool is_listed(const char *const *list, const char *name)
{
    for (; list && *list; list++) {
        if (strcmp(*list, name) == 0)
            return true;
    }
    return false;
}

/* --- the sources --- */

static bool read_defaults(struct reading *reading, struct error *err)
{
    for (size_t i = 0; i < reading->row_count; i++) {
        const struct config_row *row = &reading->rows[i];
        AUTO_FREE char *source = memory_printf("the default of %s", row->name);
        if (row->default_text && !set_from_text(row, &reading->values[i], row->default_text, source, err))
            return false;
    }
    return true;
}

static json_t *parse_file(const char *file, struct error *err)
{
    size_t size = 0;
    AUTO_FREE char *bytes = fd_read_file(file, FILE_MAX_BYTES, &size, err);
    if (bytes == NULL)
        return NULL;
    json_error_t where;
    json_t *json = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &where);
    if (json == NULL) {
        char *quote = strstr(where.text, " near "); /* what is quoted there may be a secret */
        if (quote)
            *quote = '\0';
        error_set(err, ERROR_INVALID, "%s, line %d, column %d: %s", file, where.line, where.column, where.text);
        return NULL;
    }
    if (!json_is_object(json)) {
        json_decref(json);
        error_set(err, ERROR_INVALID, "%s must be one JSON object: {\"key\": value, ...}", file);
        return NULL;
    }
    return json;
}

static bool read_object(struct reading *reading, json_t *object, const char *file, const char *const *foreign,
                        struct error *err)
{
    const char *key = NULL;
    json_t *json = NULL;
    json_object_foreach (object, key, json) {
        size_t i = row_of(reading, key, strlen(key), false);
        AUTO_FREE char *source = memory_printf("%s: %s", file, i < reading->row_count ? key : "");
        if (i < reading->row_count && !set_from_json(&reading->rows[i], &reading->values[i], json, source, err))
            return false;
        if (i == reading->row_count && !is_listed(foreign, key))
            return unknown_name(reading, key, "", source, err);
    }
    return true;
}

static bool read_file(struct reading *reading, const char *file, const char *const *foreign, struct error *err)
{
    if (file == NULL)
        return true;
    struct error why = {0};
    json_t *object = parse_file(file, &why);
    if (object == NULL && why.kind == ERROR_NOT_FOUND)
        return true;
    if (object == NULL) {
        if (err)
            *err = why;
        return false;
    }
    bool read = read_object(reading, object, file, foreign, err);
    json_decref(object);
    return read;
}

static bool read_environment(struct reading *reading, struct error *err)
{
    for (size_t i = 0; i < reading->row_count; i++) {
        AUTO_FREE char *variable = memory_printf("PARLEY_%s", reading->rows[i].name);
        for (char *c = variable; *c; c++) {
            if (*c >= 'a' && *c <= 'z')
                *c = (char)(*c - 'a' + 'A');
        }
        const char *text = getenv(variable);
        if (text && text[0] && !set_from_text(&reading->rows[i], &reading->values[i], text, variable, err))
            return false;
    }
    return true;
}

/* Reads the flag at argv[at]; returns how many words it took, 0 on failure. */
static int read_flag(struct reading *reading, int argc, char *const argv[], int at, struct error *err)
{
    const char *word = argv[at];
    if (!text_starts_with(word, "--") || word[2] == '\0' || word[2] == '=') {
        error_set(err, ERROR_INVALID, "\"%.64s\" is not a flag; flags are --name VALUE or --name=VALUE", word);
        return 0;
    }
    const char *name = word + 2;
    size_t length = strcspn(name, "=");
    AUTO_FREE char *flag = memory_copy(word, length + 2);
    size_t i = row_of(reading, name, length, true);
    if (i == reading->row_count) {
        unknown_name(reading, flag + 2, "--", "", err);
        return 0;
    }
    const struct config_row *row = &reading->rows[i];
    if (name[length] == '=')
        return set_from_text(row, &reading->values[i], name + length + 1, flag, err) ? 1 : 0;
    if (row->type == CONFIG_SWITCH)
        return set_from_text(row, &reading->values[i], "true", flag, err) ? 1 : 0;
    if (at + 1 >= argc || text_starts_with(argv[at + 1], "--")) {
        error_set(err, ERROR_INVALID, "%s needs a value: %s VALUE or %s=VALUE", flag, flag, flag);
        return 0;
    }
    return set_from_text(row, &reading->values[i], argv[at + 1], flag, err) ? 2 : 0;
}

static bool read_flags(struct reading *reading, int argc, char *const argv[], struct error *err)
{
    for (int at = 0; at < argc;) {
        int words = read_flag(reading, argc, argv, at, err);
        if (words == 0)
            return false;
        at += words;
    }
    return true;
}

bool config_load(void *settings, const struct config_row *rows, size_t row_count, const char *file,
                 const char *const *foreign, int argc, char *const argv[], struct error *err)
{
    __attribute__((cleanup(reading_cleanup))) struct reading reading = {
        .rows = rows, .row_count = row_count, .values = memory_array(row_count, sizeof(struct value))};
    if (!read_defaults(&reading, err) || !read_file(&reading, file, foreign, err) || !read_environment(&reading, err) ||
        !read_flags(&reading, argc, argv, err))
        return false;
    for (size_t i = 0; i < row_count; i++) {
        char *field = (char *)settings + rows[i].offset;
        struct value *value = &reading.values[i];
        if (rows[i].type == CONFIG_TEXT)
            memcpy(field, &value->text, sizeof value->text);
        else if (rows[i].type == CONFIG_NUMBER)
            memcpy(field, &value->number, sizeof value->number);
        else
            memcpy(field, &value->on, sizeof value->on);
        value->text = NULL;
    }
    return true;
}

void config_done(void *settings, const struct config_row *rows, size_t row_count)
{
    for (size_t i = 0; i < row_count; i++) {
        if (rows[i].type != CONFIG_TEXT)
            continue;
        void *field = (char *)settings + rows[i].offset;
        char *text = NULL;
        memcpy(&text, field, sizeof text);
        free(text);
        text = NULL;
        memcpy(field, &text, sizeof text);
    }
}

void config_print_help(FILE *to, const struct config_row *rows, size_t row_count)
{
    static const char *const PLACEHOLDERS[] = {[CONFIG_TEXT] = " TEXT", [CONFIG_NUMBER] = " N", [CONFIG_SWITCH] = ""};
    for (size_t i = 0; i < row_count; i++) {
        AUTO_FREE char *flag = memory_printf("--%s%s", rows[i].name, PLACEHOLDERS[rows[i].type]);
        for (char *c = flag; *c; c++)
            *c = (char)(*c == '_' ? '-' : *c);
        (void)fprintf(to, "  %-28s %s", flag, rows[i].help);
        if (rows[i].default_text)
            (void)fprintf(to, " (default %s)", rows[i].default_text);
        (void)fputc('\n', to);
    }
}

static const char *state_of_flags(int argc, char *const argv[])
{
    const char *found = NULL; /* the last one counts, as in config_load */
    for (int i = 0; i < argc; i++) {
        if (text_starts_with(argv[i], "--state="))
            found = argv[i] + strlen("--state=");
        else if (strcmp(argv[i], "--state") == 0 && i + 1 < argc)
            found = argv[++i];
    }
    return found;
}

char *config_state_folder(int argc, char *const argv[])
{
    const char *told = state_of_flags(argc, argv);
    if (told == NULL)
        told = getenv("PARLEY_STATE");
    if (told && told[0])
        return memory_string(told);
    const char *home = getenv("XDG_STATE_HOME");
    if (geteuid() == 0)
        return memory_string("/var/lib/parley");
    if (home && home[0] == '/') /* XDG Base Directory: a relative one is to be ignored */
        return memory_printf("%s/parley", home);
    home = getenv("HOME");
    if (home == NULL || home[0] != '/') {
        const struct passwd *user = getpwuid(geteuid());
        home = user ? user->pw_dir : NULL;
    }
    return home ? memory_printf("%s/.local/state/parley", home) : memory_string("/var/lib/parley");
}

bool config_load_state(void *settings, const struct config_row *rows, size_t row_count, const char *const *foreign,
                       int argc, char *const argv[], struct error *err)
{
    AUTO_FREE char *state = config_state_folder(argc, argv);
    AUTO_FREE char *file = memory_printf("%s/config.json", state);
    if (state[0] != '/')
        return error_set(err, ERROR_INVALID, "state must be an absolute path, not \"%s\"", state);
    if (!config_load(settings, rows, row_count, file, foreign, argc, argv, err))
        return false;
    for (size_t i = 0; i < row_count; i++) {
        if (!text_equal(rows[i].name, "state"))
            continue;
        char **field = (char **)(void *)((char *)settings + rows[i].offset);
        free(*field);
        *field = TAKE(state);
    }
    return true;
}

static void default_file(char **field, const char *state, const char *name)
{
    char *path = memory_printf("%s/tls/%s", state, name);
    if (*field == NULL && access(path, F_OK) == 0)
        *field = TAKE(path);
    free(path);
}

void config_default_tls(const char *state, char **cert, char **key, char **ca)
{
    default_file(ca, state, "ca.pem");
    if (*cert != NULL || *key != NULL)
        return;
    default_file(cert, state, "server.pem");
    if (*cert != NULL)
        *key = memory_printf("%s/tls/server.key", state);
}

bool config_set_log_level(const char *text, struct error *err)
{
    static const char *const LEVELS[] = {
        [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};
    for (size_t i = 0; i < sizeof LEVELS / sizeof *LEVELS; i++) {
        if (text_equal(text, LEVELS[i])) {
            log_set_level((enum log_level)i);
            return true;
        }
    }
    return error_set(err, ERROR_INVALID, "log_level must be debug, info, warn or error, not \"%s\"", text);
}

bool config_set_log_format(const char *text, struct error *err)
{
    if (!text_equal(text, "text") && !text_equal(text, "json"))
        return error_set(err, ERROR_INVALID, "log_format: \"%.64s\" is neither text nor json", text ? text : "");
    log_set_format(text_equal(text, "json") ? LOG_JSON : LOG_TEXT);
    return true;
}

static bool is_loopback(const char *host)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET;
    if (inet_pton(AF_INET6, host, &six) == 1)
        return IN6_IS_ADDR_LOOPBACK(&six);
    return text_equal(host, "localhost");
}

bool config_check_listener(const struct config_listener *listener, struct error *err)
{
    bool has_cert = listener->tls_cert != NULL, has_key = listener->tls_key != NULL;
    if (has_cert != has_key)
        return error_set(err, ERROR_INVALID, "tls_cert and tls_key belong together: %s is missing",
                         has_cert ? "tls_key" : "tls_cert");
    if (has_cert || listener->insecure_http || is_loopback(listener->host))
        return true;
    return error_set(err, ERROR_INVALID,
                     "%.64s is beyond loopback and there is no TLS: keys and tokens would be readable on the way; set "
                     "tls_cert and tls_key (`parley tls init` makes them), or insecure_http if a proxy does TLS",
                     listener->host);
}
