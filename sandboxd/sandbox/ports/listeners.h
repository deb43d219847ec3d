/** listeners.h - asks the kernel for the sockets that listen in a net namespace, by a NETLINK_SOCK_DIAG socket of it
 *  (sock_diag(7)), a part at a time. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct port_list;

struct listeners;

/** `fd` (borrowed) is non-blocking. Sockets of `hidden_uid`, as the kernel tells it there, are left out. */
struct listeners *listeners_new(int fd, uint32_t hidden_uid) MUST_USE;
void listeners_free(struct listeners *listeners);
DEFINE_AUTO(listeners)

/** Begins to ask, anew. */
bool listeners_ask(struct listeners *listeners, struct error *err) MUST_USE;

/** Reads what is there, not too much at a time: 1 all was told, 0 there is more to come, -1 with INTERNAL. */
int listeners_read(struct listeners *listeners, struct error *err) MUST_USE;

/** What was told. */
void listeners_show(const struct listeners *listeners, struct port_list *list);

/** True for a socket that asks the kernel this. */
bool listeners_check_socket(int fd, struct error *err) MUST_USE;
