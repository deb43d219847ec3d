/** target.h - where a webhook may lead. A user's is https to public addresses alone: what is behind this machine's
 *  network is not his to reach through us. The address is judged when it is dialled, so no name that changes between a
 *  look and the call helps. */
#pragma once

#include "shared/base/error.h"

#include <sys/socket.h>

#define WEBHOOK_HOSTS_MAX 64

/** Checks the form of a URL, and its scheme. `is_free`: an admin's, which may be http too. `hosts`: words with commas
 *  between them, each `host` or `host:port`, that everybody may reach, by http too; NULL none. ERROR_INVALID says what
 *  is allowed. */
bool target_check(const char *url, bool is_free, const char *hosts, struct error *err) MUST_USE;

/** Whether the URL's host is in that list. */
bool target_is_listed(const char *url, const char *hosts) MUST_USE;

/** Whether an address is one of the public internet: none of a private network, this host, a link, a multicast group,
 *  nor one that stands for another (mapped, NAT64, 6to4). */
bool target_is_public(const struct sockaddr *address) MUST_USE;
