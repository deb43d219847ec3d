/* Goal: a node gets its key only with the secret of a join token, and only from the negotiator that the token names;
 * who stands between can read nothing, change nothing, put no key of its own in. */
#include "shared/node_protocol/enrol.h"

#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <sodium.h>

struct stage {
    struct key master;
    struct enrol_pair negotiator, node;
    struct join_token token;
    struct enrol_request asked;
    json_t *ask;
};

static void open_stage(struct stage *stage)
{
    struct error err = {0};
    key_random(&stage->master);
    enrol_negotiator_pair(&stage->negotiator, &stage->master);
    enrol_node_pair(&stage->node);
    randombytes_buf(stage->token.id, sizeof stage->token.id);
    key_random(&stage->token.secret);
    enrol_negotiator_hash(&stage->negotiator, stage->token.negotiator_hash);
    stage->ask = enrol_ask(&stage->token, "n7", &stage->node, &stage->asked, &err);
    CHECK(stage->ask != NULL);
}

static struct enrol_grant grant_of(const char *node)
{
    struct enrol_grant grant = {.epoch = 3};
    key_random(&grant.node_key);
    CHECK(text_copy(grant.node, sizeof grant.node, node));
    CHECK(text_copy(grant.deployment, sizeof grant.deployment, "dep_0123"));
    return grant;
}

/* Turns one bit of the bytes behind a base64url text. */
static json_t *with_bit(const json_t *json, const char *field, size_t bit)
{
    uint8_t bytes[512];
    char text[1024];
    size_t size = 0;
    json_t *copy = json_deep_copy(json);
    const char *before = json_string_value(json_object_get(json, field));
    CHECK(before && text_base64url_decode(bytes, sizeof bytes, &size, before, strlen(before)));
    bytes[bit / 8 % size] ^= (uint8_t)(1U << bit % 8);
    text_base64url_encode(text, bytes, size);
    json_object_set_new(copy, field, json_string(text));
    return copy;
}

static void tokens(void)
{
    struct stage stage = {.ask = NULL};
    struct error err = {0};
    char text[ENROL_TOKEN_BYTES], wrong[ENROL_TOKEN_BYTES + 8];
    struct join_token read = {.id = {1}};
    open_stage(&stage);
    join_token_format(&stage.token, text);
    CHECK(join_token_parse(&read, text, &err));
    CHECK(memcmp(&read, &stage.token, sizeof read) == 0);
    const char *refused[] = {"", "pj_", "pk_AAAA", text + 1, text + 3};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK(!join_token_parse(&read, refused[i], &err) && err.kind == ERROR_INVALID);
    snprintf(wrong, sizeof wrong, "%sA", text);
    CHECK(!join_token_parse(&read, wrong, &err));
    snprintf(wrong, sizeof wrong, "%s", text);
    wrong[strlen(wrong) - 1] = '\0';
    CHECK(!join_token_parse(&read, wrong, &err));
    CHECK(strstr(err.message, text + 3) == NULL); /* no secret in an error */
    CHECK(memcmp(&read, &stage.token, sizeof read) == 0);
    json_decref(stage.ask);
}

static void pairs(void)
{
    struct key master = {{1}};
    struct enrol_pair one, again, other;
    enrol_negotiator_pair(&one, &master);
    enrol_negotiator_pair(&again, &master);
    CHECK(memcmp(&one, &again, sizeof one) == 0); /* outlives a restart */
    master.bytes[0] = 2;
    enrol_negotiator_pair(&other, &master);
    CHECK(memcmp(one.public_key, other.public_key, 32) != 0);
    enrol_node_pair(&one);
    enrol_node_pair(&again);
    CHECK(memcmp(one.public_key, again.public_key, 32) != 0);
}

static void a_request_is_proved_whole(void)
{
    struct stage stage = {.ask = NULL};
    struct error err = {0};
    struct enrol_request request;
    struct key other;
    open_stage(&stage);
    CHECK(enrol_read(&request, stage.ask, &err));
    CHECK(memcmp(&request, &stage.asked, sizeof request) == 0);
    CHECK(enrol_is_proved(&request, &stage.token.secret));
    key_random(&other);
    CHECK(!enrol_is_proved(&request, &other));
    static const char *const FIELDS[] = {"id", "public_key", "nonce", "proof"};
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        for (size_t bit = 0; bit < 8 * 32; bit += 5) {
            json_t *changed = with_bit(stage.ask, FIELDS[i], bit);
            CHECK(enrol_read(&request, changed, &err) && !enrol_is_proved(&request, &stage.token.secret));
            json_decref(changed);
        }
    }
    json_t *renamed = json_deep_copy(stage.ask);
    json_object_set_new(renamed, "name", json_string("n8"));
    CHECK(enrol_read(&request, renamed, &err) && !enrol_is_proved(&request, &stage.token.secret));
    json_decref(renamed);
    json_decref(stage.ask);
}

static void what_has_not_the_form_is_refused(void)
{
    struct stage stage = {.ask = NULL};
    struct error err = {0};
    struct enrol_request request = {.node = "untouched"};
    open_stage(&stage);
    static const char *const FIELDS[] = {"id", "name", "public_key", "nonce", "proof"};
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        json_t *values[] = {
            NULL,
            json_integer(1),
            json_string(""),
            json_string("a b"),
            json_null(),
            json_string("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")};
        for (size_t j = 0; j < sizeof values / sizeof *values; j++) {
            json_t *wrong = json_deep_copy(stage.ask);
            json_object_del(wrong, FIELDS[i]);
            if (values[j])
                json_object_set_new(wrong, FIELDS[i], values[j]);
            err = (struct error){0};
            CHECK(!enrol_read(&request, wrong, &err) && err.kind == ERROR_INVALID && strstr(err.message, FIELDS[i]));
            json_decref(wrong);
        }
    }
    json_t *more = json_deep_copy(stage.ask);
    json_object_set_new(more, "secret", json_string("x"));
    CHECK(!enrol_read(&request, more, &err));
    json_decref(more);
    CHECK_TEXT(request.node, "untouched");
    CHECK(enrol_ask(&stage.token, "", &stage.node, &request, &err) == NULL && err.kind == ERROR_INVALID);
    CHECK(enrol_ask(&stage.token, "a/b", &stage.node, &request, &err) == NULL);
    json_decref(stage.ask);
}

/* Somebody between puts his own key in and asks in the node's name, without the secret. */
static void no_other_key_can_be_put_in(void)
{
    struct stage stage = {.ask = NULL};
    struct error err = {0};
    struct enrol_pair between;
    struct enrol_request request;
    open_stage(&stage);
    enrol_node_pair(&between);
    char text[64];
    json_t *swapped = json_deep_copy(stage.ask);
    text_base64url_encode(text, between.public_key, 32);
    json_object_set_new(swapped, "public_key", json_string(text));
    CHECK(enrol_read(&request, swapped, &err) && !enrol_is_proved(&request, &stage.token.secret));
    json_decref(swapped);
    /* All he has of the token is its id; he signs anew with a secret of his own. */
    struct join_token guessed = stage.token;
    key_random(&guessed.secret);
    json_t *resigned = enrol_ask(&guessed, "n7", &between, &request, &err);
    CHECK(enrol_read(&request, resigned, &err) && !enrol_is_proved(&request, &stage.token.secret));
    json_decref(resigned);
    json_decref(stage.ask);
}

static void the_answer_is_for_one_request(void)
{
    struct stage stage = {.ask = NULL};
    struct error err = {0};
    struct enrol_grant sent = grant_of("n7"), got = {.node = "untouched"};
    open_stage(&stage);
    json_t *answer = enrol_seal(&stage.negotiator, stage.node.public_key, stage.asked.transcript, &sent, &err);
    CHECK(answer != NULL);
    CHECK(enrol_open(&got, answer, stage.token.negotiator_hash, &stage.node, stage.asked.transcript, &err));
    CHECK(memcmp(&got, &sent, sizeof got) == 0);
    /* A later request of the same node is not answered by it. */
    struct enrol_request again;
    json_t *ask = enrol_ask(&stage.token, "n7", &stage.node, &again, &err);
    got = (struct enrol_grant){.node = "untouched"};
    CHECK(!enrol_open(&got, answer, stage.token.negotiator_hash, &stage.node, again.transcript, &err) &&
          err.kind == ERROR_UNAUTHENTICATED && strstr(err.message, "another request"));
    json_decref(ask);
    /* Nor does another node open it. */
    struct enrol_pair other;
    enrol_node_pair(&other);
    CHECK(!enrol_open(&got, answer, stage.token.negotiator_hash, &other, stage.asked.transcript, &err) &&
          strstr(err.message, "does not open"));
    CHECK_TEXT(got.node, "untouched");
    json_decref(answer);
    json_decref(stage.ask);
}

static void no_bit_of_the_answer_can_change(void)
{
    struct stage stage = {.ask = NULL};
    struct error err = {0};
    struct enrol_grant sent = grant_of("n7"), got;
    open_stage(&stage);
    json_t *answer = enrol_seal(&stage.negotiator, stage.node.public_key, stage.asked.transcript, &sent, &err);
    static const char *const FIELDS[] = {"public_key", "nonce", "box"};
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        for (size_t bit = 0; bit < 8 * ENROL_BOX_BYTES; bit += i < 2 ? 3 : 7) {
            json_t *changed = with_bit(answer, FIELDS[i], bit);
            err = (struct error){0};
            CHECK(!enrol_open(&got, changed, stage.token.negotiator_hash, &stage.node, stage.asked.transcript, &err) &&
                  err.kind == ERROR_UNAUTHENTICATED);
            json_decref(changed);
        }
        json_t *without = json_deep_copy(answer);
        json_object_del(without, FIELDS[i]);
        CHECK(!enrol_open(&got, without, stage.token.negotiator_hash, &stage.node, stage.asked.transcript, &err) &&
              err.kind == ERROR_INVALID && strstr(err.message, FIELDS[i]));
        json_decref(without);
    }
    json_decref(answer);
    json_decref(stage.ask);
}

/* He answers himself, with a grant that he would know: the token's hash names another key. */
static void nobody_else_can_answer(void)
{
    struct stage stage = {.ask = NULL};
    struct error err = {0};
    struct enrol_pair between;
    struct enrol_grant sent = grant_of("n7"), got;
    open_stage(&stage);
    enrol_node_pair(&between);
    json_t *answer = enrol_seal(&between, stage.node.public_key, stage.asked.transcript, &sent, &err);
    CHECK(!enrol_open(&got, answer, stage.token.negotiator_hash, &stage.node, stage.asked.transcript, &err) &&
          err.kind == ERROR_UNAUTHENTICATED && strstr(err.message, "between"));
    /* And with the right public key written in: it does not fit the box. */
    char text[64];
    text_base64url_encode(text, stage.negotiator.public_key, 32);
    json_object_set_new(answer, "public_key", json_string(text));
    CHECK(!enrol_open(&got, answer, stage.token.negotiator_hash, &stage.node, stage.asked.transcript, &err));
    json_decref(answer);
    /* A node key that is no key at all (of low order) gets no box. */
    uint8_t zeros[32] = {0};
    CHECK(enrol_seal(&stage.negotiator, zeros, stage.asked.transcript, &sent, &err) == NULL &&
          err.kind == ERROR_INVALID);
    json_decref(stage.ask);
}

static void a_grant_is_looked_at(void)
{
    struct stage stage = {.ask = NULL};
    struct error err = {0};
    struct enrol_grant got;
    open_stage(&stage);
    struct enrol_grant wrong[] = {grant_of("n7"), grant_of("n7"), grant_of("n7")};
    wrong[0].epoch = 0;
    strcpy(wrong[1].node, "../x");
    wrong[2].deployment[0] = '\0';
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *answer = enrol_seal(&stage.negotiator, stage.node.public_key, stage.asked.transcript, &wrong[i], &err);
        CHECK(!enrol_open(&got, answer, stage.token.negotiator_hash, &stage.node, stage.asked.transcript, &err) &&
              err.kind == ERROR_UNAUTHENTICATED);
        json_decref(answer);
    }
    json_decref(stage.ask);
}

static void a_rekeying_is_bound(void)
{
    uint8_t bound[ENROL_HASH_BYTES], other[ENROL_HASH_BYTES];
    enrol_rekey_bound(bound, "n1", 1, 2);
    enrol_rekey_bound(other, "n1", 1, 2);
    CHECK(memcmp(bound, other, sizeof bound) == 0);
    enrol_rekey_bound(other, "n2", 1, 2);
    CHECK(memcmp(bound, other, sizeof bound) != 0);
    enrol_rekey_bound(other, "n1", 1, 3);
    CHECK(memcmp(bound, other, sizeof bound) != 0);
    enrol_rekey_bound(other, "n1", 11, 2); /* no two fields run into each other */
    uint8_t more[ENROL_HASH_BYTES];
    enrol_rekey_bound(more, "n11", 1, 2);
    CHECK(memcmp(more, other, sizeof other) != 0);
}

int main(void)
{
    keys_start();
    tokens();
    pairs();
    a_request_is_proved_whole();
    what_has_not_the_form_is_refused();
    no_other_key_can_be_put_in();
    the_answer_is_for_one_request();
    no_bit_of_the_answer_can_change();
    nobody_else_can_answer();
    a_grant_is_looked_at();
    a_rekeying_is_bound();
    return check_done();
}
