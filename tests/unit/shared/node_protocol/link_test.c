/* link_test.c - the layout byte by byte, every changed byte refused, and each number accepted once. */
#include "shared/node_protocol/link.h"
#include "tests/unit/check.h"

#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <sodium.h>

static const uint8_t KEY[LINK_KEY_BYTES] = "0123456789abcdef0123456789abcde";
static const uint8_t OTHER_KEY[LINK_KEY_BYTES] = "0123456789abcdef0123456789abcdE";

static const struct link_head REQUEST = {
    .node = "node-a", .incarnation = 0x0102030405060708, .number = 0x1112131415161718, .in_reply_to = 0};
static const struct link_head REPLY = {
    .node = "node-a", .incarnation = 2, .number = 3, .in_reply_to = 0x2122232425262728};

static bool is_same(const struct link_head *a, const struct link_head *b)
{
    return strcmp(a->node, b->node) == 0 && a->incarnation == b->incarnation && a->number == b->number &&
           a->in_reply_to == b->in_reply_to;
}

static void seal_text(const struct link_head *head, const char *json, uint8_t **bytes, size_t *size)
{
    json_t *message = json_loads(json, 0, NULL);
    struct error err = {0};
    CHECK(link_seal(KEY, head, message, bytes, size, &err));
    json_decref(message);
}

/* Golden: link.h's layout. The 24 bytes of nonce differ each time; what they seal is opened here with libsodium alone.
 */
static void test_layout(void)
{
    static const char *const CLEAR[] = {"504c31"
                                        "00"
                                        "06"
                                        "6e6f64652d61"
                                        "0102030405060708"
                                        "1112131415161718"
                                        "0000000000000000",
                                        "504c31"
                                        "01"
                                        "06"
                                        "6e6f64652d61"
                                        "0000000000000002"
                                        "0000000000000003"
                                        "2122232425262728"};
    for (int i = 0; i < 2; i++) {
        AUTO_FREE uint8_t *bytes = NULL;
        size_t size = 0;
        char hex[2 * 35 + 1];
        seal_text(i ? &REPLY : &REQUEST, "{\"a\": [1, true]}", &bytes, &size);
        CHECK(size == 35 + 24 + 14 + 16);
        text_hex(hex, bytes, 35);
        CHECK_TEXT(hex, CLEAR[i]);
        char plain[15] = "";
        CHECK(crypto_aead_xchacha20poly1305_ietf_decrypt((uint8_t *)plain, NULL, NULL, bytes + 59, size - 59, bytes, 35,
                                                         bytes + 35, KEY) == 0);
        CHECK_TEXT(plain, "{\"a\":[1,true]}");
    }
}

/* A message sealed elsewhere (libsodium by hand), key as above, nonce 24 x 0x40: opens to the same. */
static void test_golden(void)
{
    static const char GOLDEN[] =
        "504c3100066e6f64652d610102030405060708111213141516171800000000000000004040404040404040404040404040404040404040"
        "404040400563bcff1c5d652ba6c6e152d5c8004b3f877fd7d5e9e6dd09d182439d3ddfa363070a75";
    uint8_t bytes[(sizeof GOLDEN - 1) / 2];
    struct link_head head = {0};
    struct error err = {0};
    CHECK(text_hex_decode(bytes, sizeof bytes, GOLDEN, sizeof GOLDEN - 1));
    json_t *message = link_open(KEY, bytes, sizeof bytes, &head, &err);
    CHECK(is_same(&head, &REQUEST));
    CHECK_TEXT(json_string_value(json_object_get(message, "verb")), "heartbeat");
    json_decref(message);
}

static void test_round_trip(void)
{
    AUTO_FREE uint8_t *bytes = NULL;
    AUTO_FREE uint8_t *again = NULL;
    size_t size = 0;
    struct link_head head = {0};
    struct error err = {0};
    seal_text(&REPLY, "[\"x\"]", &bytes, &size);
    seal_text(&REPLY, "[\"x\"]", &again, &size);
    CHECK(memcmp(bytes, again, size) != 0); /* never the same nonce */
    CHECK(link_peek(bytes, size, &head, &err) && is_same(&head, &REPLY));
    head = (struct link_head){0};
    json_t *message = link_open(KEY, bytes, size, &head, &err);
    CHECK(is_same(&head, &REPLY));
    CHECK_TEXT(json_string_value(json_array_get(message, 0)), "x");
    json_decref(message);
    head = (struct link_head){.number = 77};
    CHECK(link_open(OTHER_KEY, bytes, size, &head, &err) == NULL && err.kind == ERROR_UNAUTHENTICATED);
    CHECK(head.number == 77); /* untouched */
}

static void test_tampering(void)
{
    AUTO_FREE uint8_t *bytes = NULL;
    size_t size = 0;
    struct link_head head = {.number = 77};
    seal_text(&REPLY, "{\"do\":\"prepare\"}", &bytes, &size);
    for (size_t at = 0; at < size; at++) {
        for (int bit = 0; bit < 8; bit++) {
            struct error err = {0};
            bytes[at] ^= (uint8_t)(1 << bit);
            CHECK(link_open(KEY, bytes, size, &head, &err) == NULL);
            CHECK(err.kind == ERROR_UNAUTHENTICATED || (at < 35 && err.kind == ERROR_INVALID));
            bytes[at] ^= (uint8_t)(1 << bit);
        }
    }
    for (size_t length = 0; length < size; length++) {
        struct error err = {0};
        AUTO_FREE uint8_t *cut = memory_copy(bytes, length); /* of that size, so that ASan sees a read beyond it */
        cut = memory_resize(cut, length);
        CHECK(link_open(KEY, cut, length, &head, &err) == NULL && err.kind != ERROR_NONE);
    }
    AUTO_FREE uint8_t *named = memory_copy(bytes, size);
    named[7] = '\0'; /* in the node's name */
    CHECK(!link_peek(named, size, &head, NULL));
    AUTO_FREE uint8_t *longer = memory_copy(bytes, size);
    CHECK(link_open(KEY, longer, size + 1, &head, NULL) == NULL);
    CHECK(link_open(KEY, bytes, LINK_MESSAGE_MAX_BYTES + 1, &head, NULL) == NULL);
    CHECK(head.number == 77);
    json_decref(link_open(KEY, bytes, size, &head, NULL));
    CHECK(head.number == REPLY.number); /* it was whole all the time */
}

static void test_bad_heads(void)
{
    json_t *message = json_object();
    json_t *text = json_string("no object");
    struct error err = {0};
    uint8_t *bytes = NULL;
    size_t size = 5;
    struct link_head head = REQUEST;
    head.node[0] = '\0';
    CHECK(!link_seal(KEY, &head, message, &bytes, &size, &err) && err.kind == ERROR_INVALID);
    memcpy(head.node, "a/b", 4);
    CHECK(!link_seal(KEY, &head, message, &bytes, &size, &err) && err.kind == ERROR_INVALID);
    memset(head.node, 'n', sizeof head.node);
    CHECK(!link_seal(KEY, &head, message, &bytes, &size, &err) && err.kind == ERROR_INVALID);
    head = REQUEST;
    head.number = 0;
    CHECK(!link_seal(KEY, &head, message, &bytes, &size, &err) && err.kind == ERROR_INVALID);
    CHECK(!link_seal(KEY, &REQUEST, text, &bytes, &size, &err) && err.kind == ERROR_INVALID);
    CHECK(!link_seal(KEY, &REQUEST, NULL, &bytes, &size, &err) && err.kind == ERROR_INVALID);
    AUTO_FREE char *large = memory_new(LINK_MESSAGE_MAX_BYTES + 1);
    memset(large, 'x', LINK_MESSAGE_MAX_BYTES);
    json_object_set_new(message, "large", json_string(large));
    CHECK(!link_seal(KEY, &REQUEST, message, &bytes, &size, &err) && err.kind == ERROR_TOO_LARGE);
    CHECK(bytes == NULL && size == 5);

    /* The largest that fits, with the longest name: 5 + 63 + 24 of head, 24 of nonce, 16 of MAC, {"large":""} is 12. */
    memset(head.node, 'n', sizeof head.node - 1);
    head.node[sizeof head.node - 1] = '\0';
    head.number = 1;
    large[LINK_MESSAGE_MAX_BYTES - 132 - 12 + 1] = '\0';
    json_object_set_new(message, "large", json_string(large));
    CHECK(!link_seal(KEY, &head, message, &bytes, &size, &err) && err.kind == ERROR_TOO_LARGE);
    large[LINK_MESSAGE_MAX_BYTES - 132 - 12] = '\0';
    json_object_set_new(message, "large", json_string(large));
    CHECK(link_seal(KEY, &head, message, &bytes, &size, &err) && size == LINK_MESSAGE_MAX_BYTES);
    struct link_head seen = {0};
    json_t *opened = link_open(KEY, bytes, size, &seen, &err);
    CHECK(json_equal(opened, message) && is_same(&seen, &head));
    json_decref(opened);
    free(bytes);
    json_decref(message);
    json_decref(text);
}

/* Sealed rightly, yet no JSON object: a peer with the key gone wrong. */
static void test_bad_plain_text(void)
{
    static const char *const PLAIN[] = {"", "{", "\"text\"", "1", "{} x", "{\"a\":1,\"a\":2}", "{\"a\":\"\xFF\"}"};
    AUTO_FREE uint8_t *bytes = NULL;
    size_t size = 0;
    seal_text(&REQUEST, "{\"room\":\"for the longest of them\"}", &bytes, &size);
    for (size_t i = 0; i < sizeof PLAIN / sizeof PLAIN[0]; i++) {
        size_t length = strlen(PLAIN[i]);
        uint8_t plain[32];
        memcpy(plain, PLAIN[i], length);
        crypto_aead_xchacha20poly1305_ietf_encrypt(bytes + 59, NULL, plain, length, bytes, 35, NULL, bytes + 35, KEY);
        struct link_head head = {0};
        struct error err = {0};
        CHECK(link_open(KEY, bytes, 59 + length + 16, &head, &err) == NULL && err.kind == ERROR_INVALID);
    }
}

static bool accepts(struct link_window *window, uint64_t incarnation, uint64_t number)
{
    struct error err = {0};
    struct link_head head = {.node = "n", .incarnation = incarnation, .number = number};
    struct link_window before = *window;
    bool accepted = link_window_accept(window, &head, &err);
    CHECK(accepted == (err.kind == ERROR_NONE));
    CHECK(accepted || memcmp(&before, window, sizeof before) == 0);
    return accepted;
}

static void test_window(void)
{
    struct link_window window = {0};
    CHECK(!accepts(&window, 1, 0));
    CHECK(accepts(&window, 1, 1) && !accepts(&window, 1, 1));
    CHECK(accepts(&window, 1, 5) && accepts(&window, 1, 3) && accepts(&window, 1, 2) && accepts(&window, 1, 4));
    for (uint64_t number = 1; number <= 5; number++)
        CHECK(!accepts(&window, 1, number));
    CHECK(accepts(&window, 1, 1029)); /* 1024 numbers: 6..1029 */
    CHECK(!accepts(&window, 1, 5) && accepts(&window, 1, 6) && !accepts(&window, 1, 6));
    CHECK(accepts(&window, 1, 1028) && accepts(&window, 1, 7));
    CHECK(accepts(&window, 1, 2053)); /* 1030..2053: all that was seen has left */
    CHECK(!accepts(&window, 1, 1029) && accepts(&window, 1, 1030));
    CHECK(accepts(&window, 1, 1000000) && !accepts(&window, 1, 2053) && accepts(&window, 1, 999999));
    CHECK(accepts(&window, 1, UINT64_MAX) && !accepts(&window, 1, UINT64_MAX));
    CHECK(accepts(&window, 1, UINT64_MAX - 1023) && !accepts(&window, 1, UINT64_MAX - 1024));
    CHECK(accepts(&window, 2, 1) && !accepts(&window, 2, 1)); /* a new start of the sender */
    CHECK(!accepts(&window, 1, UINT64_MAX - 5) && !accepts(&window, 0, 1));
    CHECK(accepts(&window, 2, 2));
    CHECK(accepts(&window, 9, 500) && accepts(&window, 9, 499) && accepts(&window, 9, 1) && !accepts(&window, 2, 3));
}

/* Against a plain memory of all that was accepted. */
static void test_window_random(void)
{
    enum { NUMBERS = 8000 };
    static bool seen[NUMBERS + 1];
    struct link_window window = {0};
    uint64_t highest = 0;
    for (int i = 0; i < 40000; i++) {
        uint64_t low = highest > 1500 ? highest - 1500 : 0;
        uint64_t number = low + random_below(1800) + 1;
        if (number > NUMBERS)
            break;
        bool expected = !seen[number] && number + 1024 > highest;
        CHECK(accepts(&window, 3, number) == expected);
        seen[number] = seen[number] || expected;
        highest = number > highest && expected ? number : highest;
    }
    CHECK(highest > 2048);
}

int main(void)
{
    test_layout();
    test_golden();
    test_round_trip();
    test_tampering();
    test_bad_heads();
    test_bad_plain_text();
    test_window();
    test_window_random();
    return check_done();
}
