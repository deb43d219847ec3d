/** node_rig.h - the negotiator's end of the sealed route, for tests with a front_rig. */
#pragma once

#include "shared/node_protocol/link.h"
#include "tests/unit/sandboxd/front/front_rig.h"

static uint64_t node_next_number = 1;

/* Sends one sealed message; the caller reads the socket. Takes the reference. */
static int node_send_sealed(const struct front_rig *rig, struct link_head head, const struct key *key, json_t *message)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    struct error err = {0};
    if (!link_seal(key->bytes, &head, message, &bytes, &size, &err))
        rig_fail(err.message);
    json_decref(message);
    int fd = front_send_request(rig, "POST", "/node/v1/message", NULL, bytes, size);
    free(bytes);
    return fd;
}

static struct link_head node_next_head(const struct front_rig *rig)
{
    struct link_head head = {.node = "n1", .incarnation = rig->incarnation, .number = node_next_number++};
    return head;
}

static UNUSED int node_ask(const struct front_rig *rig, json_t *message)
{
    struct key key;
    key_link(&key, &rig->node_key, "negotiator");
    return node_send_sealed(rig, node_next_head(rig), &key, message);
}

/* Opens the sealed answer; NULL when it is none. The caller owns it. */
static UNUSED json_t *node_answer_of(const struct front_rig *rig, int fd)
{
    AUTO_REPLY reply = front_read(fd);
    struct key key;
    struct link_head head;
    struct error err = {0};
    key_link(&key, &rig->node_key, "sandboxd");
    CHECK(reply.status == 200);
    json_t *answer = link_open(key.bytes, (const uint8_t *)reply.body, reply.size, &head, &err);
    CHECK(answer != NULL && head.in_reply_to < node_next_number && head.incarnation == rig->incarnation);
    return answer;
}

/** Asks and opens the answer. Takes the reference; the caller owns the answer. */
static UNUSED json_t *node_call_now(const struct front_rig *rig, json_t *message)
{
    return node_answer_of(rig, node_ask(rig, message));
}

/** The code of an answer that is an error, "ok" of one that is not, "" of nonsense. Takes the reference. */
static UNUSED const char *node_code(json_t *answer)
{
    static char code[64];
    const char *text = json_string_value(json_object_get(json_object_get(answer, "error"), "code"));
    snprintf(code, sizeof code, "%s", text ? text : json_is_true(json_object_get(answer, "ok")) ? "ok" : "");
    json_decref(answer);
    return code;
}
