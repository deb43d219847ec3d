#include "clients/cli/bundle.h"

#include "shared/base/memory.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct bundle {
    char *path, *folder;
    int fd;
    struct archive *archive;
    json_t *parts, *missing;
    bool is_finished;
};

static bool fail(struct bundle *bundle, struct error *err)
{
    const char *why = archive_error_string(bundle->archive);
    return error_set(err, ERROR_DISK_FULL, "%s: %s", bundle->path, why ? why : "it cannot be written");
}

struct bundle *bundle_new(const char *path, const char *folder, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        error_set_errno(err, ERROR_INVALID, "make %s", path);
        return NULL;
    }
    AUTO(bundle) *bundle = memory_new(sizeof *bundle);
    *bundle = (struct bundle){.path = memory_string(path),
                              .folder = memory_string(folder),
                              .fd = fd,
                              .archive = archive_write_new(),
                              .parts = json_array(),
                              .missing = json_array()};
    archive_write_set_format_pax_restricted(bundle->archive);
    if (archive_write_add_filter_gzip(bundle->archive) >= ARCHIVE_WARN &&
        archive_write_open_fd(bundle->archive, fd) == ARCHIVE_OK)
        return TAKE(bundle);
    fail(bundle, err);
    return NULL;
}

static bool write_entry(struct bundle *bundle, const char *name, const char *data, size_t size, struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/%s", bundle->folder, name);
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, path);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0600);
    archive_entry_set_size(entry, (la_int64_t)size);
    archive_entry_set_mtime(entry, time(NULL), 0);
    bool written = archive_write_header(bundle->archive, entry) == ARCHIVE_OK &&
                   (size == 0 || archive_write_data(bundle->archive, data, size) == (la_ssize_t)size);
    archive_entry_free(entry);
    return written || fail(bundle, err);
}

bool bundle_add(struct bundle *bundle, const char *name, const char *data, size_t size, struct error *err)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof hash + 1];
    crypto_hash_sha256(hash, (const unsigned char *)(data ? data : ""), size);
    text_hex(hex, hash, sizeof hash);
    json_array_append_new(bundle->parts,
                          json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)size, "sha256", hex));
    return write_entry(bundle, name, data, size, err);
}

bool bundle_add_json(struct bundle *bundle, const char *name, const json_t *value, struct error *err)
{
    AUTO_FREE char *text = json_dumps(value, JSON_INDENT(1) | JSON_ENCODE_ANY);
    AUTO_FREE char *lines = memory_printf("%s\n", text ? text : "null");
    return bundle_add(bundle, name, lines, strlen(lines), err);
}

void bundle_miss(struct bundle *bundle, const char *what, const struct error *why)
{
    json_array_append_new(bundle->missing, json_pack("{s:s, s:s, s:s}", "what", what, "code", error_code(why->kind),
                                                     "why", why->message));
}

const json_t *bundle_missing(const struct bundle *bundle)
{
    return bundle->missing;
}

bool bundle_finish(struct bundle *bundle, const json_t *about, struct error *err)
{
    json_t *manifest = json_deep_copy(about);
    json_object_set(manifest, "parts", bundle->parts);
    json_object_set(manifest, "missing", bundle->missing);
    AUTO_FREE char *text = json_dumps(manifest, JSON_INDENT(1));
    json_decref(manifest);
    AUTO_FREE char *lines = memory_printf("%s\n", text ? text : "{}");
    if (!write_entry(bundle, "manifest.json", lines, strlen(lines), err))
        return false;
    if (archive_write_close(bundle->archive) != ARCHIVE_OK || fsync(bundle->fd) < 0)
        return fail(bundle, err);
    bundle->is_finished = true;
    return true;
}

void bundle_free(struct bundle *bundle)
{
    if (bundle == NULL)
        return;
    archive_write_free(bundle->archive);
    close(bundle->fd);
    if (!bundle->is_finished)
        unlink(bundle->path);
    json_decref(bundle->parts);
    json_decref(bundle->missing);
    free(bundle->path);
    free(bundle->folder);
    free(bundle);
}
