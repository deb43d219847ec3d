#include "sandboxd/templates/tool/import_child.h"

#include "sandboxd/templates/tool/image.h"
#include "sandboxd/templates/tool/layer.h"
#include "sandboxd/templates/tool/packages.h"
#include "sandboxd/templates/tool/settle.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

/* Headers and padding, beside what is in the files. */
static const uint64_t HEADERS_OF_AN_ENTRY = 4096;
static const uint64_t HEADERS_AT_LEAST = 64ULL << 20;

uint64_t import_archive_max(const struct tree_limits *limits)
{
    uint64_t most = limits->bytes + HEADERS_AT_LEAST;
    uint64_t headers = limits->entries < most / HEADERS_OF_AN_ENTRY ? limits->entries * HEADERS_OF_AN_ENTRY : most;
    return limits->bytes + HEADERS_AT_LEAST + headers;
}

/* --- layers --- */

static bool check_digests(const struct image_layer *layer, const struct blob_facts *facts, struct error *err)
{
    if (layer->bytes >= 0 && facts->bytes != (uint64_t)layer->bytes)
        return error_set(err, ERROR_INVALID, "it has %" PRIu64 " bytes, the manifest says %" PRId64, facts->bytes,
                         layer->bytes);
    if (layer->digest[0] && strcmp(layer->digest, facts->digest) != 0)
        return error_set(err, ERROR_INVALID, "its digest is %s, the manifest says %s", facts->digest, layer->digest);
    if (strcmp(layer->plain, facts->plain_digest) != 0)
        return error_set(err, ERROR_INVALID, "unpacked, its digest is %s, the configuration says %s",
                         facts->plain_digest, layer->plain);
    return true;
}

static bool apply_layer(struct tree *tree, const struct source *source, const struct image_layer *layer,
                        struct error *err)
{
    AUTO_BLOB blob = BLOB_NONE;
    struct blob_facts facts;
    if (!blob_open(&blob, source, layer->member, import_archive_max(&tree->limits), err))
        return false;
    if (!layer_apply(tree, blob.tar, err)) {
        blob_explain(&blob, err);
        return false;
    }
    return blob_finish(&blob, &facts, err) && check_digests(layer, &facts, err);
}

static bool apply_layers(struct tree *tree, const struct source *source, const struct image *image, int channel,
                         struct error *err)
{
    for (size_t i = 0; i < image->layer_count; i++) {
        struct message progress = {.type = MESSAGE_PROGRESS,
                                   .as.progress = {.layer = (uint32_t)i + 1,
                                                   .layers = (uint32_t)image->layer_count,
                                                   .entries = tree->entries,
                                                   .bytes = tree->bytes}};
        message_send(channel, &progress);
        if (!apply_layer(tree, source, &image->layers[i], err))
            return error_prefix(err, "layer %zu of %zu", i + 1, image->layer_count);
    }
    return true;
}

/* --- what comes of it --- */

static void tell_package(void *context, const struct message_package *package)
{
    const int *channel = context;
    const struct message message = {.type = MESSAGE_PACKAGE, .as.package = *package};
    message_send(*channel, &message);
}

/* The last word, whatever it is. */
static void tell_result(struct tree *tree, const char *user, struct message *message, int channel, struct error *err)
{
    struct message_result *result = &message->as.result;
    if (err->kind == ERROR_NONE && settle(tree, user, &result->record, err) &&
        settle_survey(tree, &result->record, err)) {
        result->packages = packages_read(tree, result->package_manager, tell_package, &channel);
    }
    if (err->kind != ERROR_NONE)
        *message = (struct message){.type = MESSAGE_FAILED, .as.failed = *err};
    message_send(channel, message);
}

static bool import(struct tree *tree, const struct import_work *work, int channel, struct message_result *result,
                   char user[static IMAGE_USER_BYTES], struct error *err)
{
    AUTO_IMAGE image = {.layer_count = 0};
    AUTO(source) *source = work->folder >= 0
                               ? source_open_folder(work->folder)
                               : source_open_tar(work->archive, work->spool, import_archive_max(&work->limits), err);
    if (source == NULL || !image_read(&image, source, err) ||
        !image_describe(&image, &result->record, user, &result->left_out, err) ||
        !apply_layers(tree, source, &image, channel, err))
        return false;
    memcpy(result->record.digest, image.config_digest, sizeof image.config_digest);
    snprintf(result->record.source, sizeof result->record.source, "%s", image.format);
    snprintf(result->reference, sizeof result->reference, "%s", image.reference);
    return true;
}

/* Names are bytes to us, and UTF-8 to libarchive where a header says so. Built into the C library: nothing is loaded.
 */
static void use_utf8(void)
{
    (void)setlocale(LC_CTYPE, "C.UTF-8");
}

void import_child(const struct jail_inside *inside)
{
    const struct import_work *work = inside->context;
    struct error err = {0};
    struct message message = {.type = MESSAGE_RESULT, .as.result.record.kind = TEMPLATE_WHOLE};
    char user[IMAGE_USER_BYTES] = "";
    AUTO_TREE tree;
    use_utf8();
    tree_init(&tree, inside->rootfs, &work->limits);
    if (!import(&tree, work, inside->channel, &message.as.result, user, &err) && err.kind == ERROR_NONE)
        error_set(&err, ERROR_INTERNAL, "the import failed");
    tell_result(&tree, user, &message, inside->channel, &err);
}

void survey_child(const struct jail_inside *inside)
{
    const struct import_work *work = inside->context;
    struct error err = {0};
    struct message message = {.type = MESSAGE_RESULT,
                              .as.result.record = {.kind = TEMPLATE_WHOLE, .workdir = "/workspace"}};
    AUTO_TREE tree;
    tree_init(&tree, inside->rootfs, &work->limits);
    tell_result(&tree, "", &message, inside->channel, &err);
}
