#include "clients/c/grant_cache.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

static const size_t CACHE_MAX_BYTES = (size_t)4 * 1024 * 1024;
static const unsigned STORE_WAIT_MS = 3000; /* somebody else may be refreshing meanwhile */
static const long TRY_EVERY_NS = 10000000;

char *grant_cache_key(const struct place *place, const struct grant_request *request)
{
    /* A capability URL is a grant by itself: of whatever it is asked, it is the same one. */
    const struct grant_request by_url = {.thread = place->capability};
    if (place->capability)
        request = &by_url;
    AUTO_FREE char *more = request->more ? json_dumps(request->more, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    AUTO_FREE char *names =
        memory_printf("%s\n%s\n%s\n%s\n%s\n%u%s%s", place->url, place->api_key, request->thread,
                      request->sandbox ? request->sandbox : "auto", request->scopes ? request->scopes : "",
                      request->ttl_s, more ? "\n" : "", more ? more : "");
    unsigned char hash[16];
    crypto_generichash(hash, sizeof hash, (const unsigned char *)names, strlen(names), NULL, 0);
    sodium_memzero(names, strlen(names));
    char *hex = memory_new(2 * sizeof hash + 1);
    text_hex(hex, hash, sizeof hash);
    return hex;
}

static bool open_lock(int *lock)
{
    AUTO_FREE char *path = place_cache_path();
    AUTO_FREE char *lock_path = memory_printf("%s.lock", path);
    bool acted = place_act_as_user(path);
    AUTO_FD int fd = -1;
    if (place_make_folder_of(path, NULL))
        fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    place_return(acted);
    *lock = TAKE_FD(fd);
    return *lock >= 0;
}

bool grant_cache_lock(int *lock, unsigned wait_ms)
{
    int opened;
    if (!open_lock(&opened)) {
        *lock = -1;
        return true;
    }
    AUTO_FD int fd = opened;
    uint64_t until = clock_boot_ns() + wait_ms * UINT64_C(1000000);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) { /* a file system without locks */
            *lock = -1;
            return true;
        }
        if (clock_boot_ns() >= until)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = TRY_EVERY_NS}, NULL);
    }
    *lock = TAKE_FD(fd);
    return true;
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

static void drop_spent(json_t *cache, int64_t now_ms)
{
    const char *key;
    json_t *entry;
    void *next;
    json_object_foreach_safe (cache, next, key, entry) {
        if (json_integer_value(json_object_get(entry, "expires_ms")) + GRANT_REFRESHABLE_MS <= now_ms)
            json_object_del(cache, key);
    }
}

static void write_cache(const char *path, json_t *cache)
{
    drop_spent(cache, clock_wall_ms());
    char *text = json_dumps(cache, JSON_INDENT(1));
    if (!fd_write_file(path, 0600, text, strlen(text), NULL))
        unlink(path); /* a spent token left in it would be presented again, and taken for a leak */
    sodium_memzero(text, strlen(text));
    free(text);
}

/* Changes the whole file under the lock, as the user it belongs to. */
static void change_cache(int held, void (*change)(json_t *cache, const char *name, json_t *entry), const char *name,
                         json_t *entry)
{
    AUTO_FREE char *path = place_cache_path();
    AUTO_FD int own = -1;
    if (held < 0 && (!grant_cache_lock(&own, STORE_WAIT_MS) || own < 0))
        return;
    bool acted = place_act_as_user(path);
    json_t *cache = read_cache(path);
    change(cache, name, entry);
    write_cache(path, cache);
    json_decref(cache);
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

void grant_cache_store(int lock, const char *key, json_t *entry)
{
    change_cache(lock, put_entry, key, entry);
}

void grant_cache_drop_sandbox(const char *sandbox_id)
{
    change_cache(-1, drop_sandbox, sandbox_id, NULL);
}
