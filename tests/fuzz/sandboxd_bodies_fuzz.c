/* sandboxd_bodies_fuzz.c - a client's body as hostile bytes, on its way through the reader of bodies into each of the
 * verbs' orders, and the negotiator's words about a sandbox. The first byte chooses; what is taken is within the bounds
 * that the verbs rely on. */
#include "sandboxd/dialects/execute/execute_request.h"
#include "sandboxd/dialects/native/exec_request.h"
#include "sandboxd/dialects/native/kernels/kernel_request.h"
#include "sandboxd/dialects/node_calls.h"
#include "shared/http/http_internal.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_command(const struct command *command)
{
    require(command != NULL && command->argument_count > 0 && command->argument_count <= COMMAND_ARGUMENTS_MAX);
    require(memchr(command->id, '\0', sizeof command->id) != NULL);
    require(!command->terminal || (command->columns >= 1 && command->columns <= FRONT_INIT_CELLS_MAX &&
                                   command->rows >= 1 && command->rows <= FRONT_INIT_CELLS_MAX));
}

static bool read_exec(const json_t *body, struct error *err)
{
    struct exec_request request = {0};
    if (!exec_request_parse(&request, body, err)) {
        require(request.command == NULL);
        return false;
    }
    check_command(request.command);
    command_free(request.command);
    return true;
}

static bool read_frame(const json_t *body, struct error *err)
{
    struct exec_frame frame = {0};
    if (!exec_request_parse_frame(&frame, body, err)) {
        require(frame.command == NULL);
        return false;
    }
    check_command(frame.command);
    command_free(frame.command);
    return true;
}

static bool read_kernel(const json_t *body, struct error *err)
{
    struct kernel_create create = {0};
    if (!kernel_request_create(&create, body, err)) {
        require(create.command == NULL);
        return false;
    }
    require(create.command != NULL);
    command_free(create.command);
    return true;
}

static bool read_run(const json_t *body, struct error *err)
{
    struct kernel_ordered ordered = {0};
    if (!kernel_request_run(&ordered, body, err))
        return false;
    require(ordered.framing <= KERNEL_ONE_JSON);
    return true;
}

static bool read_restart(const json_t *body, struct error *err)
{
    uint64_t timeout_ms = 0;
    return kernel_request_restart(&timeout_ms, body, err);
}

static bool read_execute(const json_t *body, struct error *err)
{
    struct execute_request request = {0};
    if (!execute_request_parse(&request, "sbx_00000000000000000000", body, err)) {
        require(request.order == NULL);
        return false;
    }
    require(request.timeout_s > 0 && request.timeout_s <= EXECUTE_TIMEOUT_MAX_S);
    require(request.order != NULL || request.refusal.kind != ERROR_NONE);
    double margin = execute_request_margin(request.timeout_s);
    require(margin >= 0 && margin < request.timeout_s);
    execution_order_free(request.order);
    return true;
}

/* What was read is sent, or refused here by a sentence. */
static void check_sendable(const struct front_launcher_message *message)
{
    struct error err = {0};
    size_t size = front_launcher_size(message->type);
    require(front_launcher_check(message, size, 0, FL_FROM_FRONT, &err) || err.kind == ERROR_INVALID);
}

static bool read_prepare(const json_t *body, struct error *err)
{
    struct front_launcher_message message = {.type = FL_PREPARE, .request = 1};
    AUTO(command) *entrypoint = NULL;
    if (!node_prepare_read(body, &message.as.prepare, &entrypoint, err))
        return false;
    require(message.as.prepare.volume_count <= FRONT_LAUNCHER_VOLUMES);
    require(message.as.prepare.deadline_wall_ms > 0 && message.as.prepare.epoch > 0);
    check_sendable(&message);
    return true;
}

static bool read_node(const json_t *body, struct error *err)
{
    struct fl_limits limits = {0};
    struct fl_network network = {0};
    bool has_limits = node_limits_read(body, &limits, err);
    bool has_network = node_network_read(json_object_get(body, "network"), &network, err);
    if (has_network)
        require(network.mode <= FL_NETWORK_ALLOW && network.net_count <= FRONT_LAUNCHER_NETS &&
                network.denied_count <= FRONT_LAUNCHER_NETS &&
                memchr(network.denied_names, '\0', sizeof network.denied_names) != NULL &&
                memchr(network.names, '\0', sizeof network.names) != NULL);
    return has_limits && has_network;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool (*const READERS[])(const json_t *body, struct error *err) = {
        read_exec, read_frame, read_kernel, read_run, read_restart, read_execute, read_prepare, read_node};
    if (size == 0)
        return 0;
    char *copy = malloc(size);
    require(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    h2o_req_t h2o = {.entity = {.base = copy, .len = size - 1}};
    struct http_request request = {.h2o = &h2o};
    struct error err = {0};
    json_t *body = http_request_json(&request, &err);
    if (body == NULL)
        require(err.kind == ERROR_INVALID);
    else if (!READERS[data[0] % (sizeof READERS / sizeof *READERS)](body, &err))
        require(err.kind == ERROR_INVALID && err.message[0]);
    json_decref(body);
    free(copy);
    return 0;
}
