/* edit.c - EDIT: texts replaced in a file, whole or not at all. */
#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/put.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static bool read_whole(int fd, const struct stat *status, struct text *text, struct error *err)
{
    char bytes[65536];
    if (status->st_size > FRONT_FILES_EDITED_MAX)
        return error_set(err, ERROR_TOO_LARGE, "only files up to %d bytes can be edited", FRONT_FILES_EDITED_MAX);
    for (;;) {
        ssize_t got = read(fd, bytes, sizeof bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(err, "read");
        if (got == 0)
            return true;
        if (text->length + (size_t)got > FRONT_FILES_EDITED_MAX)
            return error_set(err, ERROR_TOO_LARGE, "the file grows while it is edited");
        text_append(text, bytes, (size_t)got);
    }
}

static size_t count_of(const struct text *text, const struct files_bytes *old)
{
    size_t count = 0, left = text->length;
    const char *at = text->data;
    for (const char *hit; left >= old->size && (hit = memmem(at, left, old->data, old->size)) != NULL; count++) {
        left -= (size_t)(hit - at) + old->size;
        at = hit + old->size;
    }
    return count;
}

static void replace_all(const struct text *text, const struct files_edit *edit, struct text *to)
{
    size_t left = text->length;
    const char *at = text->data;
    for (const char *hit; left > 0 && (hit = memmem(at, left, edit->old.data, edit->old.size)) != NULL;) {
        text_append(to, at, (size_t)(hit - at));
        text_append(to, edit->new.data, edit->new.size);
        left -= (size_t)(hit - at) + edit->old.size;
        at = hit + edit->old.size;
    }
    if (left > 0)
        text_append(to, at, left);
}

static bool apply(struct helper *helper, struct text *text, const struct files_edit *edit, size_t number,
                  struct error *err)
{
    AUTO_TEXT changed = {0};
    size_t count = count_of(text, &edit->old);
    if (count == 0 && edit->optional)
        return true;
    if (count == 0)
        return error_set(err, ERROR_CONFLICT, "edit %zu: the old text is not in the file", number);
    if (count > 1 && !edit->all)
        return error_set(err, ERROR_CONFLICT, "edit %zu: the old text is in the file %zu times; make it longer, or all",
                         number, count);
    size_t kept = text->length - count * edit->old.size;
    if (edit->new.size > 0 && count > (FRONT_FILES_EDITED_MAX - kept) / edit->new.size)
        return error_set(err, ERROR_TOO_LARGE, "edit %zu: the file would be over %d bytes", number,
                         FRONT_FILES_EDITED_MAX);
    replace_all(text, edit, &changed);
    text_done(text);
    *text = changed;
    changed = (struct text){0};
    helper->count += count;
    return true;
}

static bool edit_text(struct helper *helper, struct text *text, struct error *err)
{
    AUTO_FREE struct files_edit *edits = NULL;
    size_t count;
    if (!front_files_edits_read(helper->descriptor, &edits, &count, err))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!apply(helper, text, &edits[i], i + 1, err))
            return false;
    }
    return true;
}

/* Commands know nothing of our lock: a change by one must not be lost. */
static bool is_as_read(const struct place *place, const struct stat *read, struct error *err)
{
    struct stat now;
    struct files_version before = version_of(read);
    if (fstatat(place->folder, place->name, &now, AT_SYMLINK_NOFOLLOW) == 0) {
        struct files_version after = version_of(&now);
        if (is_same_version(&before, &after))
            return true;
    }
    return error_set(err, ERROR_CONFLICT, "the file was changed while it was edited");
}

static bool edit_at(struct helper *helper, const struct place *place, struct error *err)
{
    const struct files_request *request = helper->request;
    AUTO_TEXT text = {0};
    AUTO_TEMPORARY file = TEMPORARY_NONE;
    struct stat there, read;
    bool is_new;
    if (!condition_check(request, place, &there, err))
        return false;
    AUTO_FD int fd = open_regular_at(place->folder, place->name, O_RDONLY, request->root, &read, err);
    if (fd < 0 || !read_whole(fd, &read, &text, err) || !edit_text(helper, &text, err) ||
        (helper->count > 0 && !temporary_open(place, &file, err)))
        return false;
    if (helper->count == 0) /* every edit was optional: there is nothing to write */
        return helper_entry(helper, &read, place->folder, place->name, "", 0, err);
    /* Not fd_write_all's kinds: EFBIG is told. */
    for (size_t done = 0; done < text.length;) {
        ssize_t written = write(file.fd, text.data + done, text.length - done);
        if (written < 0 && errno != EINTR)
            return fail_errno(err, "write");
        done += written > 0 ? (size_t)written : 0;
    }
    return is_as_read(place, &read, err) && put_in_locked(helper, &file, place, &is_new, err);
}

bool files_edit(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    AUTO_PLACE place = PLACE_NONE;
    struct error why = {0};
    if (!resolve_target(helper, request->root, request->path, false, &place, err))
        return false;
    AUTO_FD int lock = condition_lock(helper, &place, &why);
    if (lock < 0 && why.kind != ERROR_NONE) {
        *err = why;
        return false;
    }
    return edit_at(helper, &place, err);
}
