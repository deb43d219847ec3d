/* piece.c - PIECE: an upload that goes on where it stopped, in `.name.<upload>.part` beside the file to be. */
#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/put.h"

#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

enum {
    DIGEST_BYTES = 17 /* as hex */
};

/* FNV-1a: tells long names apart whose beginnings are one. */
static uint64_t digest(const char *name)
{
    uint64_t sum = 14695981039346656037U;
    for (; *name; name++)
        sum = (sum ^ (unsigned char)*name) * 1099511628211U;
    return sum;
}

static bool part_name(char to[static NAME_MAX + 1], const char *name, const char *upload, struct error *err)
{
    size_t room = NAME_MAX - strlen("..") - strlen(".part") - strlen(upload);
    bool fits = strlen(name) <= room ? text_format(to, NAME_MAX + 1, ".%s.%s.part", name, upload)
                                     : text_format(to, NAME_MAX + 1, ".%.*s~%016llx.%s.part", (int)room - DIGEST_BYTES,
                                                   name, (unsigned long long)digest(name), upload);
    return fits || error_set(err, ERROR_INVALID, "the names of the file and of the upload are too long");
}

/* A part is ours alone: a regular file of this one name, which nobody else fills now. */
static bool check_part(int fd, const struct place *place, const char *name, struct stat *status, struct error *err)
{
    struct stat named;
    if (fstat(fd, status) < 0)
        return fail_errno(err, "fstat");
    if (!S_ISREG(status->st_mode))
        return error_set(err, ERROR_CONFLICT, "%s stands in the part's place", type_name(status->st_mode));
    if (status->st_nlink > 1 || status->st_uid != geteuid())
        return error_set(err, ERROR_CONFLICT, "a file of several names, or of another, stands in the part's place");
    /* Another may have made it the file itself, after it was opened here and before it was locked. */
    if (fstatat(place->folder, name, &named, AT_SYMLINK_NOFOLLOW) < 0 || named.st_dev != status->st_dev ||
        named.st_ino != status->st_ino)
        return error_set(err, ERROR_CONFLICT, "another piece of this upload was under way");
    return true;
}

static bool open_part(const struct place *place, const char *name, struct temporary *part, struct stat *status,
                      struct error *err)
{
    AUTO_FD int fd =
        openat(place->folder, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ELOOP)
        return error_set_errno(err, ERROR_CONFLICT, "a link stands in the part's place");
    if (fd < 0)
        return fail_errno(err, "opening the part");
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return error_set_errno(err, ERROR_CONFLICT, "another piece of this upload is under way");
    if (!check_part(fd, place, name, status, err))
        return false;
    *part = (struct temporary){.fd = TAKE_FD(fd), .folder = place->folder};
    return true;
}

static bool tell_state(struct helper *helper, uint64_t received, struct error *err)
{
    uint64_t total = helper->request->total;
    const struct files_record state = {
        .kind = FILES_STATE, .received = received < total ? received : total, .total = total};
    return helper_record(helper, &state, err);
}

/* What is there, without taking any. */
static bool look(struct helper *helper, const struct place *place, const char *name, struct error *err)
{
    struct stat status = {0};
    if (fstatat(place->folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT)
        return fail_errno(err, "stat of the part");
    return tell_state(helper, S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0, err);
}

static bool pour_piece(struct helper *helper, const struct temporary *part, uint64_t received, struct error *err)
{
    const struct files_request *request = helper->request;
    if (received > request->total)
        return error_set(err, ERROR_CONFLICT, "the part is longer than the whole; upload under another name");
    if (request->offset > received) {
        if (!tell_state(helper, received, err))
            return false;
        return error_set(err, ERROR_RANGE, "the piece starts at %llu, but %llu bytes are here",
                         (unsigned long long)request->offset, (unsigned long long)received);
    }
    if (lseek(part->fd, 0, SEEK_END) < 0)
        return fail_errno(err, "lseek");
    uint64_t overlap = received - request->offset;
    struct pour pour = {.pipe = helper->descriptor,
                        .file = part->fd,
                        .skip = overlap < request->size ? overlap : request->size,
                        .max = request->size};
    return pour_all(helper, &pour, err) &&
           (pour.poured == request->size || error_set(err, ERROR_INVALID, "the piece is shorter than announced"));
}

/* The last piece makes it the file; should that fail, the part stays. */
static bool finish(struct helper *helper, struct temporary *part, const char *name, const struct place *place,
                   struct error *err)
{
    bool is_new = false;
    memcpy(part->name, name, NAME_MAX + 1);
    bool is_done = put_in_place(helper, part, place, &is_new, err);
    part->name[0] = 0;
    helper->count = is_new;
    return is_done;
}

static bool take_piece(struct helper *helper, const struct place *place, const char *name, struct error *err)
{
    const struct files_request *request = helper->request;
    AUTO_TEMPORARY part = TEMPORARY_NONE;
    struct stat status;
    if (!open_part(place, name, &part, &status, err) || !pour_piece(helper, &part, (uint64_t)status.st_size, err))
        return false;
    if (!check_part(part.fd, place, name, &status, err) || !tell_state(helper, (uint64_t)status.st_size, err))
        return false;
    return (uint64_t)status.st_size < request->total || finish(helper, &part, name, place, err);
}

bool files_piece(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    AUTO_PLACE place = PLACE_NONE;
    struct stat there;
    char name[NAME_MAX + 1];
    bool takes = helper->descriptor >= 0;
    if (!resolve_target(helper, request->root, request->path, takes && (request->flags & FILES_PARENTS), &place, err))
        return false;
    if (!part_name(name, place.name, request->upload, err))
        return false;
    if (!takes)
        return look(helper, &place, name, err);
    return condition_check(request, &place, &there, err) && put_may_replace(&there, err) &&
           take_piece(helper, &place, name, err);
}
