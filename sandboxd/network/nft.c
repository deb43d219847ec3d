#include "sandboxd/network/nft.h"

#include <nftables/libnftables.h>
#include <string.h>

/* The library's own struct under our name. */
static struct nft_ctx *context_of(struct nft *nft)
{
    return (struct nft_ctx *)nft;
}

struct nft *nft_new(struct error *err)
{
    struct nft_ctx *context = nft_ctx_new(NFT_CTX_DEFAULT);
    if (context && nft_ctx_buffer_output(context) == 0 && nft_ctx_buffer_error(context) == 0)
        return (struct nft *)context;
    error_set(err, ERROR_INTERNAL, "libnftables does not start");
    nft_free((struct nft *)context);
    return NULL;
}

void nft_free(struct nft *nft)
{
    if (nft)
        nft_ctx_free(context_of(nft));
}

bool nft_run(struct nft *nft, struct text *commands, struct error *err)
{
    bool is_done = nft_run_cmd_from_buffer(context_of(nft), commands->data) == 0;
    const char *why = is_done ? "" : nft_ctx_get_error_buffer(context_of(nft));
    if (!is_done)
        error_set(err, ERROR_INTERNAL, "nftables: %.*s", (int)strcspn(why, "\n"), why);
    text_done(commands);
    return is_done;
}
