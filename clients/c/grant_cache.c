#include "clients/c/grant_cache.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/file.h>

static const size_t CACHE_MAX_BYTES = 4 * 1024 * 1024;

char *grant_cache_key(const struct place *place, const struct grant_request *request)
{
    AUTO_FREE char *names =
        memory_printf("%s\n%s\n%s\n%s\n%s", place->url, place->api_key, request->thread,
                      request->sandbox ? request->sandbox : "auto", request->scopes ? request->scopes : "");
    unsigned char hash[16];
    crypto_generichash(hash, sizeof hash, (const unsigned char *)names, strlen(names), NULL, 0);
    sodium_memzero(names, strlen(names));
    char *hex = memory_new(2 * sizeof hash + 1);
    text_hex(hex, hash, sizeof hash);
    return hex;
}

/* Several runs at once share the file: whoever changes it holds this lock from reading to writing. */
static int lock_cache(const char *path)
{
    AUTO_FREE char *lock_path = memory_printf("%s.lock", path);
    if (!place_make_folder_of(path, NULL))
        return -1;
    AUTO_FD int fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd >= 0 && flock(fd, LOCK_EX) == 0 ? TAKE_FD(fd) : -1;
}

static json_t *read_cache(const char *path)
{
    size_t size = 0;
    char *text = fd_read_file(path, CACHE_MAX_BYTES, &size, NULL);
    json_t *cache = text ? json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (text)
        sodium_memzero(text, size);
    free(text);
    if (!json_is_object(cache)) {
        json_decref(cache);
        return json_object();
    }
    return cache;
}

json_t *grant_cache_find(const char *key)
{
    AUTO_FREE char *path = place_cache_path();
    json_t *cache = read_cache(path); /* replaced by rename: a reader always sees a whole file */
    json_t *entry = json_incref(json_object_get(cache, key));
    json_decref(cache);
    return entry;
}

static void drop_expired(json_t *cache, int64_t now_ms)
{
    const char *key;
    json_t *entry;
    void *next;
    json_object_foreach_safe (cache, next, key, entry) {
        if (json_integer_value(json_object_get(entry, "expires_ms")) <= now_ms)
            json_object_del(cache, key);
    }
}

static void write_cache(const char *path, json_t *cache)
{
    drop_expired(cache, clock_wall_ms());
    char *text = json_dumps(cache, JSON_INDENT(1));
    (void)!fd_write_file(path, 0600, text, strlen(text), NULL);
    sodium_memzero(text, strlen(text));
    free(text);
}

/* Changes the whole file under the lock, as the user it belongs to. */
static void change_cache(void (*change)(json_t *cache, const char *name, json_t *entry), const char *name,
                         json_t *entry)
{
    AUTO_FREE char *path = place_cache_path();
    bool acted = place_act_as_user(path);
    AUTO_FD int lock = lock_cache(path);
    if (lock >= 0) {
        json_t *cache = read_cache(path);
        change(cache, name, entry);
        write_cache(path, cache);
        json_decref(cache);
    }
    place_return(acted);
}

static void put_entry(json_t *cache, const char *key, json_t *entry)
{
    if (entry)
        json_object_set(cache, key, entry);
    else
        json_object_del(cache, key);
}

static void drop_sandbox(json_t *cache, const char *sandbox_id, json_t *entry UNUSED)
{
    const char *key;
    json_t *one;
    void *next;
    json_object_foreach_safe (cache, next, key, one) {
        if (text_equal(json_string_value(json_object_get(one, "sandbox_id")), sandbox_id))
            json_object_del(cache, key);
    }
}

void grant_cache_store(const char *key, json_t *entry)
{
    change_cache(put_entry, key, entry);
}

void grant_cache_drop_sandbox(const char *sandbox_id)
{
    change_cache(drop_sandbox, sandbox_id, NULL);
}
