/* osb_volumes.c - volumes: host is a folder that the node gives, pvc a named volume. */
#include "negotiator/dialects/opensandbox/osb_codes.h"
#include "negotiator/dialects/opensandbox/osb_json.h"
#include "negotiator/dialects/opensandbox/osb_quantity.h"
#include "negotiator/dialects/opensandbox/osb_wish.h"
#include "shared/base/text.h"

#include <string.h>

enum { LABEL_MAX_BYTES = 63 };

static bool is_label(const char *text)
{
    size_t length = text ? strlen(text) : 0;
    return length > 0 && length <= LABEL_MAX_BYTES && text[0] != '-' && text[length - 1] != '-' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

static bool read_switch(const json_t *object, const char *name, bool missing, bool *to, struct osb_refusal *refusal)
{
    const json_t *value = osb_given(object, name);
    *to = value ? json_is_true(value) : missing;
    return value == NULL || json_is_boolean(value) ||
           osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID, "volumes: %s must be true or false", name);
}

static bool read_host(json_t *to, const json_t *host, struct osb_refusal *refusal)
{
    const char *path = osb_text_of(osb_given(host, "path"));
    json_object_set_new(to, "kind", json_string("host"));
    json_object_set_new(to, "source", json_string(path ? path : ""));
    return (path && path[0] == '/') ||
           osb_refusal_set(refusal, OSB_VOLUME_HOST, ERROR_INVALID,
                           "volumes: host.path must be an absolute path that the node gives");
}

/* What it takes to make one is asked where there is none; what does not fit stays what it was. */
static bool read_claim(json_t *to, const json_t *claim, struct osb_refusal *refusal)
{
    const char *name = osb_text_of(osb_given(claim, "claimName")), *storage = osb_text_of(osb_given(claim, "storage"));
    int64_t size_mb = 0;
    bool creates, ends;
    if (!wanted_is_volume(name))
        return osb_refusal_set(refusal, OSB_VOLUME_CLAIM, ERROR_INVALID,
                               "volumes: pvc.claimName must be 1 to %d of a-z0-9-, not beginning or ending with '-'",
                               WANTED_VOLUME_BYTES - 1);
    if (!read_switch(claim, "createIfNotExists", true, &creates, refusal) ||
        !read_switch(claim, "deleteOnSandboxTermination", false, &ends, refusal))
        return false;
    if (ends)
        return osb_refusal_set(refusal, OSB_NOT_SUPPORTED, ERROR_INVALID,
                               "volumes: a named volume outlives its sandboxes here (deleteOnSandboxTermination)");
    if (osb_given(claim, "storage") && (!storage || !osb_quantity_mib(storage, &size_mb)))
        return osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID,
                               "volumes: pvc.storage must be an amount like \"1Gi\"");
    json_object_set_new(to, "kind", json_string("named"));
    json_object_set_new(to, "source", json_string(name));
    json_object_set_new(to, "size_mb", json_integer(size_mb));
    if (!creates)
        json_object_set_new(to, "must_exist", json_true());
    return true;
}

static bool read_backend(json_t *to, const json_t *volume, struct osb_refusal *refusal)
{
    const json_t *host = osb_given(volume, "host"), *claim = osb_given(volume, "pvc"),
                 *bucket = osb_given(volume, "ossfs");
    if ((host != NULL) + (claim != NULL) + (bucket != NULL) != 1)
        return osb_refusal_set(refusal, OSB_VOLUME_BACKEND, ERROR_INVALID,
                               "volumes: each must have exactly one of host and pvc");
    if (bucket)
        return osb_refusal_set(refusal, OSB_VOLUME_UNSUPPORTED, ERROR_INVALID,
                               "volumes: there is no ossfs here; host and pvc are");
    return host ? read_host(to, host, refusal) : read_claim(to, claim, refusal);
}

static bool read_paths(json_t *to, const json_t *volume, struct osb_refusal *refusal)
{
    const char *path = osb_text_of(osb_given(volume, "mountPath")),
               *sub_path = osb_text_of(osb_given(volume, "subPath"));
    if (!path || path[0] != '/')
        return osb_refusal_set(refusal, OSB_VOLUME_PATH, ERROR_INVALID, "volumes: mountPath must be an absolute path");
    if (osb_given(volume, "subPath") && (!sub_path || sub_path[0] == '/'))
        return osb_refusal_set(refusal, OSB_VOLUME_SUB_PATH, ERROR_INVALID,
                               "volumes: subPath must be a relative path without ..");
    json_object_set_new(to, "path", json_string(path));
    json_object_set_new(to, "sub_path", json_string(sub_path ? sub_path : ""));
    return true;
}

static bool read_one(json_t *to, const json_t *volume, struct osb_refusal *refusal)
{
    bool read_only;
    if (!is_label(osb_text_of(osb_given(volume, "name"))))
        return osb_refusal_set(refusal, OSB_VOLUME_NAME, ERROR_INVALID,
                               "volumes: name must be 1 to 63 of a-z0-9-, not beginning or ending with '-'");
    json_object_set_new(to, "size_mb", json_integer(0));
    if (!read_backend(to, volume, refusal) || !read_paths(to, volume, refusal) ||
        !read_switch(volume, "readOnly", false, &read_only, refusal))
        return false;
    json_object_set_new(to, "read_only", json_boolean(read_only));
    return true;
}

static bool is_named_before(const json_t *list, size_t i)
{
    const json_t *name = json_object_get(json_array_get(list, i), "name");
    for (size_t before = 0; before < i; before++) {
        if (json_equal(name, json_object_get(json_array_get(list, before), "name")))
            return true;
    }
    return false;
}

bool osb_volumes_read(struct wanted *wanted, json_t *list, struct osb_refusal *refusal)
{
    size_t i;
    json_t *each;
    if (!json_is_array(list) || json_array_size(list) > WANTED_VOLUMES_MAX)
        return osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID, "volumes must be a list of at most %d",
                               WANTED_VOLUMES_MAX);
    wanted->volumes = json_array();
    json_array_foreach (list, i, each) {
        json_t *volume = json_object();
        json_array_append_new(wanted->volumes, volume);
        if (!read_one(volume, each, refusal))
            return false;
        if (is_named_before(list, i))
            return osb_refusal_set(refusal, OSB_VOLUME_TWICE, ERROR_INVALID, "volumes: two have the name %.63s",
                                   json_string_value(json_object_get(each, "name")));
    }
    return true;
}
