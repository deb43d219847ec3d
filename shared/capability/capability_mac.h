/** capability_mac.h - HMAC-SHA256 (RFC 2104) for tokens, with one OpenSSL context a thread. Private to this folder. */
#pragma once

#include "shared/base/cleanup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CAPABILITY_MAC_BYTES 32

/** Loads the algorithm; keys_start calls it. Any thread, any number of times; ends the program when it is missing. */
void capability_mac_start(void);

/** The MAC of `text` under a key of 32 bytes; `mac` may be the key. False when OpenSSL fails: then nothing is known. */
bool capability_mac(uint8_t mac[static CAPABILITY_MAC_BYTES], const uint8_t key[static CAPABILITY_MAC_BYTES],
                    const char *text, size_t length) MUST_USE;
