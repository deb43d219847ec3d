#include "sandboxd/templates/tool/making.h"

#include "sandboxd/templates/tool/packages_file.h"
#include "shared/base/clock.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void show_progress(const struct making *making, const struct message_progress *progress)
{
    if (!making->is_quiet)
        fprintf(stderr, "layer %" PRIu32 " of %" PRIu32 " (so far %" PRIu64 " entries, %" PRIu64 " MiB)\n",
                progress->layer, progress->layers, progress->entries, progress->bytes >> 20);
}

/* What a program says when it goes wrong is worth more than its exit status. */
static void show_text(struct making *making, const char *text)
{
    bool is_failure = text_starts_with(text, "E: ") || text_starts_with(text, "W: ") || making->last_text[0] == '\0' ||
                      strstr(text, "rror") || strstr(text, "ailed");
    bool has_failure = text_starts_with(making->last_text, "E: ");
    if (is_failure && (!has_failure || text_starts_with(text, "E: ")))
        snprintf(making->last_text, sizeof making->last_text, "%s", text);
    if (!making->is_quiet)
        fprintf(stderr, "%s\n", text);
}

/* 1: it goes on. */
static int take(struct making *making, struct packages_file *packages, const struct message *message,
                struct message_result *result, struct error *err)
{
    switch (message->type) {
    case MESSAGE_PROGRESS:
        show_progress(making, &message->as.progress);
        return 1;
    case MESSAGE_TEXT:
        show_text(making, message->as.text);
        return 1;
    case MESSAGE_PACKAGE:
        packages_file_add(packages, &message->as.package);
        if (json_array_size(packages->packages) <= MESSAGE_PACKAGES_MAX)
            return 1;
        error_set(err, ERROR_INVALID, "more than %u packages", MESSAGE_PACKAGES_MAX);
        return -1;
    case MESSAGE_RESULT:
        *result = message->as.result;
        return 0;
    default:
        *err = message->as.failed;
        return -1;
    }
}

bool making_run(struct making *making, const struct jail_plan *plan, unsigned timeout_s, struct message_result *result,
                struct error *err)
{
    AUTO_JAIL jail = JAIL_NONE;
    AUTO_PACKAGES_FILE packages;
    packages_file_init(&packages);
    if (!jail_start(&jail, plan, timeout_s, err))
        return false;
    unsigned heard = 0;
    for (int going = 1; going != 0;) {
        struct message message;
        going = jail_next(&jail, &message, err);
        if (going > 0 && ++heard > MESSAGE_PACKAGES_MAX + MESSAGE_OTHERS_MAX)
            return error_set(err, ERROR_INVALID, "the child without rights talks without end");
        if (going == 0)
            return error_set(err, ERROR_INTERNAL, "the child without rights ended without a result");
        if (going > 0)
            going = take(making, &packages, &message, result, err);
        if (going < 0)
            return false;
    }
    return packages_file_write(&packages, making->fresh->path, result->package_manager, making->digest, err);
}

bool making_execute(struct making *making, const struct jail_plan *plan, unsigned timeout_s, struct error *err)
{
    AUTO_JAIL jail = JAIL_NONE;
    AUTO_PACKAGES_FILE packages;
    struct message_result unused;
    struct error why = {0};
    packages_file_init(&packages);
    making->last_text[0] = '\0';
    if (!jail_start(&jail, plan, timeout_s, err))
        return false;
    for (;;) {
        struct message message;
        int going = jail_next(&jail, &message, &why);
        if (going == 0)
            return true;
        if (going > 0 && take(making, &packages, &message, &unused, &why) > 0)
            continue;
        return error_set(err, why.kind == ERROR_NONE ? ERROR_INTERNAL : why.kind, "%.120s%s%.110s",
                         why.kind == ERROR_NONE ? "it said that it had ended" : why.message,
                         making->last_text[0] ? "; it said: " : "", making->last_text);
    }
}

bool making_commit(const char *folder, struct new_version *fresh, struct message_result *result, const char *name,
                   const char *source, struct template *made, struct error *err)
{
    struct template_record *record = &result->record;
    record->created_ms = clock_wall_ms();
    memset(record->name, 0, sizeof record->name);
    memset(record->source, 0, sizeof record->source);
    snprintf(record->name, sizeof record->name, "%s", name);
    /* Cut where a character ends. */
    size_t length = text_utf8_prefix(source, strnlen(source, sizeof record->source - 1));
    memcpy(record->source, source, length);
    message_make_printable(record->source, sizeof record->source); /* a file's name may be anything */
    if (result->left_out > 0)
        fprintf(stderr, "%" PRIu32 " of the image's variables or its entrypoint did not fit and were left out\n",
                result->left_out);
    return new_version_commit(folder, fresh, record, err) && templates_find(folder, name, made, err);
}
