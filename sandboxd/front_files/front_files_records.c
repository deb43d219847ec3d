/* front_files_records.c - records in a packet: a head each, what its kind has, then its texts without NULs. */
#include "sandboxd/front_files/front_files.h"

#include "shared/base/text.h"

#include <string.h>

enum {
    TEXT_MAX = 32768, /* of DATA and MATCH */
    TEXTS = 4         /* of a record */
};

struct head {
    uint32_t kind;
    uint32_t size; /* of the whole record */
};

struct entry {
    uint32_t type, mode, uid, gid;
    uint64_t links;
    struct files_version version;
};

struct match {
    uint64_t line, column;
    uint32_t is_cut, reserved;
};

struct event {
    uint32_t event, is_folder;
};

struct state {
    uint64_t received, total;
};

struct done {
    uint64_t count, skipped;
    uint32_t is_truncated, reserved;
};

/* A record as it lies in the packet. */
struct wire {
    struct head head;
    uint32_t sizes[TEXTS]; /* of the texts */
    union {
        struct entry entry;
        struct match match;
        struct event event;
        struct state state;
        struct done done;
        struct error error;
    } as;
};

#define FIXED_BYTES offsetof(struct wire, as)

static size_t body_size(uint32_t kind)
{
    static const size_t sizes[] = {
        [FILES_ENTRY] = sizeof(struct entry),
        [FILES_MATCH] = sizeof(struct match),
        [FILES_EVENT] = sizeof(struct event),
        [FILES_STATE] = sizeof(struct state),
        [FILES_DATA] = 0,
        [FILES_DONE] = sizeof(struct done),
        [FILES_ERROR] = sizeof(struct error),
    };
    return kind >= FILES_ENTRY && kind <= FILES_ERROR ? sizes[kind] : 0;
}

static void encode(struct wire *wire, const struct files_record *record)
{
    switch (record->kind) {
    case FILES_ENTRY:
        wire->as.entry = (struct entry){.type = record->type,
                                        .mode = record->mode,
                                        .uid = record->uid,
                                        .gid = record->gid,
                                        .links = record->links,
                                        .version = record->version};
        return;
    case FILES_MATCH:
        wire->as.match = (struct match){.line = record->line, .column = record->column, .is_cut = record->is_cut};
        return;
    case FILES_EVENT:
        wire->as.event = (struct event){.event = record->event, .is_folder = record->is_folder};
        return;
    case FILES_STATE:
        wire->as.state = (struct state){.received = record->received, .total = record->total};
        return;
    case FILES_DONE:
        wire->as.done =
            (struct done){.count = record->count, .skipped = record->skipped, .is_truncated = record->is_truncated};
        return;
    case FILES_ERROR:
        wire->as.error = record->error;
        return;
    case FILES_DATA:
        return;
    }
}

static void decode(struct files_record *record, const struct wire *wire)
{
    switch (record->kind) {
    case FILES_ENTRY:
        record->type = (enum files_type)wire->as.entry.type;
        record->mode = wire->as.entry.mode;
        record->uid = wire->as.entry.uid;
        record->gid = wire->as.entry.gid;
        record->links = wire->as.entry.links;
        record->version = wire->as.entry.version;
        return;
    case FILES_MATCH:
        record->line = wire->as.match.line;
        record->column = wire->as.match.column;
        record->is_cut = wire->as.match.is_cut == 1;
        return;
    case FILES_EVENT:
        record->event = (enum files_event)wire->as.event.event;
        record->is_folder = wire->as.event.is_folder == 1;
        return;
    case FILES_STATE:
        record->received = wire->as.state.received;
        record->total = wire->as.state.total;
        return;
    case FILES_DONE:
        record->count = wire->as.done.count;
        record->skipped = wire->as.done.skipped;
        record->is_truncated = wire->as.done.is_truncated == 1;
        return;
    case FILES_ERROR:
        record->error = wire->as.error;
        return;
    case FILES_DATA:
        return;
    }
}

/* Where the texts of a kind belong; NULL: it has no such text. */
static void point_at_texts(struct files_record *record, struct files_bytes *texts[TEXTS])
{
    bool has_path = record->kind == FILES_ENTRY || record->kind == FILES_MATCH || record->kind == FILES_EVENT;
    texts[0] = has_path ? &record->path : NULL;
    texts[1] = record->kind == FILES_ENTRY                                 ? &record->target
               : record->kind == FILES_EVENT                               ? &record->from
               : record->kind == FILES_MATCH || record->kind == FILES_DATA ? &record->text
                                                                           : NULL;
    texts[2] = record->kind == FILES_ENTRY ? &record->owner : NULL;
    texts[3] = record->kind == FILES_ENTRY ? &record->group : NULL;
}

/* What the fields' types do not say by themselves. */
static const char *wrong_in_wire(const struct wire *wire)
{
    switch (wire->head.kind) {
    case FILES_ENTRY:
        return wire->as.entry.type < FILES_REGULAR || wire->as.entry.type > FILES_BLOCK_DEVICE ||
                       wire->as.entry.mode > 07777
                   ? "an entry's type or mode"
                   : NULL;
    case FILES_MATCH:
        return wire->as.match.line == 0 || wire->as.match.column == 0 || wire->as.match.is_cut > 1 ||
                       wire->as.match.reserved != 0
                   ? "a match's line or column"
                   : NULL;
    case FILES_EVENT:
        return wire->as.event.event < FILES_CREATED || wire->as.event.event > FILES_GONE || wire->as.event.is_folder > 1
                   ? "an event's kind"
                   : NULL;
    case FILES_STATE:
        return wire->as.state.received > wire->as.state.total ? "a state beyond its total" : NULL;
    case FILES_DONE:
        return wire->as.done.is_truncated > 1 || wire->as.done.reserved != 0 ? "an end's flags" : NULL;
    default:
        return NULL;
    }
}

static bool is_error(const struct error *error)
{
    return error->kind > ERROR_NONE && error->kind < ERROR_KINDS &&
           memchr(error->message, 0, sizeof error->message) != NULL &&
           text_utf8_prefix(error->message, strlen(error->message)) == strlen(error->message);
}

static const char *wrong_in_texts(const struct files_record *record)
{
    bool is_symlink = record->kind == FILES_ENTRY && record->type == FILES_SYMLINK;
    if (!front_files_path_is_relative(record->path.data, record->path.size) ||
        !front_files_path_is_relative(record->from.data, record->from.size))
        return "a path that is not relative";
    if (record->from.size > 0 && record->event != FILES_MOVED)
        return "an event that comes from somewhere";
    if (record->target.size > 0 && (!is_symlink || record->target.size > FRONT_FILES_PATH_MAX ||
                                    memchr(record->target.data, 0, record->target.size) != NULL))
        return "a link's target";
    if (record->owner.size > FRONT_FILES_USER_MAX || record->group.size > FRONT_FILES_USER_MAX ||
        memchr(record->owner.data, 0, record->owner.size) != NULL ||
        memchr(record->group.data, 0, record->group.size) != NULL)
        return "a user's or group's name";
    if (record->text.size > TEXT_MAX || (record->kind == FILES_DATA && record->text.size == 0))
        return "a text's size";
    if (record->kind == FILES_ERROR && !is_error(&record->error))
        return "an error that is none";
    return NULL;
}

/* A record of another end, or our own before it goes: one set of rules. */
static const char *wrong_in(const struct wire *wire, struct files_record *record)
{
    static const struct files_bytes empty = {.data = "", .size = 0};
    struct files_bytes *all[] = {&record->path, &record->target, &record->text,
                                 &record->from, &record->owner,  &record->group};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i]->size == 0)
            *all[i] = empty;
    }
    const char *wrong = wrong_in_wire(wire);
    return wrong ? wrong : wrong_in_texts(record);
}

bool front_files_record_check(const struct files_record *record, struct error *err)
{
    struct files_record copy = *record;
    struct wire wire = {.head.kind = record->kind};
    if (record->kind < FILES_ENTRY || record->kind > FILES_ERROR)
        return error_set(err, ERROR_INVALID, "unknown record %d", (int)record->kind);
    encode(&wire, record);
    const char *wrong = wrong_in(&wire, &copy);
    return wrong == NULL || error_set(err, ERROR_INVALID, "record: %s", wrong);
}

bool front_files_packet_add(struct files_packet *packet, const struct files_record *record)
{
    struct wire wire = {.head.kind = record->kind};
    struct files_record copy = *record;
    struct files_bytes *texts[TEXTS];
    size_t body = body_size(record->kind), size = FIXED_BYTES + body;
    point_at_texts(&copy, texts);
    for (int i = 0; i < TEXTS; i++) {
        if (texts[i] != NULL && texts[i]->size > TEXT_MAX)
            return false;
        wire.sizes[i] = texts[i] ? (uint32_t)texts[i]->size : 0;
        size += wire.sizes[i];
    }
    if (size > sizeof packet->data - packet->size)
        return false;
    wire.head.size = (uint32_t)size;
    encode(&wire, record);
    char *to = packet->data + packet->size;
    memcpy(to, &wire, FIXED_BYTES + body);
    to += FIXED_BYTES + body;
    for (int i = 0; i < TEXTS; i++) {
        if (wire.sizes[i] == 0)
            continue;
        memcpy(to, texts[i]->data, wire.sizes[i]);
        to += wire.sizes[i];
    }
    packet->size += size;
    return true;
}

static uint64_t texts_size(const struct wire *wire)
{
    uint64_t size = 0;
    for (int i = 0; i < TEXTS; i++)
        size += wire->sizes[i];
    return size;
}

int front_files_packet_next(const char *data, size_t size, size_t *at, struct files_record *record, struct error *err)
{
    struct wire wire = {0};
    struct files_bytes *texts[TEXTS];
    size_t left = size - *at;
    if (*at >= size)
        return 0;
    if (left < FIXED_BYTES) {
        error_set(err, ERROR_INVALID, "%zu bytes are no record", left);
        return -1;
    }
    memcpy(&wire, data + *at, FIXED_BYTES);
    size_t fixed = FIXED_BYTES + body_size(wire.head.kind);
    if (wire.head.kind < FILES_ENTRY || wire.head.kind > FILES_ERROR || left < fixed || wire.head.size > left ||
        fixed + texts_size(&wire) != wire.head.size) {
        error_set(err, ERROR_INVALID, "a record of kind %u whose sizes are wrong", wire.head.kind);
        return -1;
    }
    memcpy(&wire, data + *at, fixed);
    struct files_record got = {.kind = (enum files_record_kind)wire.head.kind};
    const char *text = data + *at + fixed;
    point_at_texts(&got, texts);
    for (int i = 0; i < TEXTS; i++) {
        if (texts[i] != NULL)
            *texts[i] = (struct files_bytes){.data = text, .size = wire.sizes[i]};
        else if (wire.sizes[i] != 0) {
            error_set(err, ERROR_INVALID, "a record of kind %u has no such text", wire.head.kind);
            return -1;
        }
        text += wire.sizes[i];
    }
    decode(&got, &wire);
    const char *wrong = wrong_in(&wire, &got);
    if (wrong != NULL) {
        error_set(err, ERROR_INVALID, "record: %s", wrong);
        return -1;
    }
    *record = got;
    *at += wire.head.size;
    return 1;
}

bool front_files_is_awaited(enum files_operation operation, enum files_record_kind kind, uint64_t number)
{
    if (kind == FILES_DONE || kind == FILES_ERROR)
        return true;
    switch (operation) {
    case FILES_LIST:
    case FILES_GLOB:
        return kind == FILES_ENTRY;
    case FILES_GREP:
        return kind == FILES_MATCH;
    case FILES_OPEN:
        return kind == (number == 0 ? FILES_ENTRY : FILES_DATA);
    case FILES_WATCH:
        return kind == (number == 0 ? FILES_ENTRY : FILES_EVENT);
    case FILES_PIECE: /* where it stands; the file when that was the last */
        return (number == 0 && kind == FILES_STATE) || (number == 1 && kind == FILES_ENTRY);
    case FILES_REMOVE:
    case FILES_PACK:
    case FILES_UNPACK:
    case FILES_COMMIT:
        return false;
    case FILES_STAT:
    case FILES_MKDIR:
    case FILES_MOVE:
    case FILES_COPY:
    case FILES_CHMOD:
    case FILES_EDIT:
    case FILES_WRITE:
        return number == 0 && kind == FILES_ENTRY;
    }
    return false;
}

bool front_files_is_complete(enum files_operation operation, uint64_t records)
{
    static const enum files_operation TOLD[] = {FILES_STAT,  FILES_OPEN, FILES_MKDIR, FILES_MOVE, FILES_COPY,
                                                FILES_CHMOD, FILES_EDIT, FILES_WRITE, FILES_PIECE};
    for (size_t i = 0; i < sizeof TOLD / sizeof *TOLD; i++) {
        if (TOLD[i] == operation)
            return records > 0;
    }
    return true;
}
