/* left_out.c - what Debian's libzmq.a asks for and this program does without. It connects to 127.0.0.1 and to sockets
 * in a folder, with no authentication below the messages' own signatures; so GSSAPI (which has no static library at
 * all), the multicast transports PGM and NORM, and everything that would ask the template's name services (a static
 * program would load them from whatever libc is there) are answered here. Of these only pgm_init, pgm_shutdown and, for
 * TCP, getaddrinfo are ever called; one that is called in spite of that ends the program and says so. Not part of
 * builds that link libzmq.so. */
#include <arpa/inet.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void left_out(void);
void left_out(void)
{
    static const char WHY[] = "parley-jupyter: libzmq called for a transport that was left out\n";
    if (write(STDERR_FILENO, WHY, sizeof WHY - 1) < 0)
        _exit(70);
    abort();
}

#define LEFT_OUT(name) void name(void) __attribute__((alias("left_out")))
#define NO_VALUE(name)                                                                                                 \
    extern void *const name;                                                                                           \
    void *const name = NULL

/* ---- GSSAPI ---- */

NO_VALUE(GSS_C_NT_HOSTBASED_SERVICE);
NO_VALUE(GSS_C_NT_USER_NAME);
LEFT_OUT(gss_accept_sec_context);
LEFT_OUT(gss_acquire_cred);
LEFT_OUT(gss_delete_sec_context);
LEFT_OUT(gss_display_name);
LEFT_OUT(gss_import_name);
LEFT_OUT(gss_init_sec_context);
LEFT_OUT(gss_release_buffer);
LEFT_OUT(gss_release_cred);
LEFT_OUT(gss_release_name);
LEFT_OUT(gss_unwrap);
LEFT_OUT(gss_wrap);

/* ---- PGM ---- */

int pgm_init(void **error);
int pgm_init(void **error)
{
    (void)error;
    return 1; /* libzmq's word for "it is there" is asked of every context; the transport itself is not */
}

int pgm_shutdown(void);
int pgm_shutdown(void)
{
    return 1;
}

LEFT_OUT(pgm_bind3);
LEFT_OUT(pgm_close);
LEFT_OUT(pgm_connect);
LEFT_OUT(pgm_error_free);
LEFT_OUT(pgm_free);
LEFT_OUT(pgm_freeaddrinfo);
LEFT_OUT(pgm_getaddrinfo);
LEFT_OUT(pgm_getsockopt);
LEFT_OUT(pgm_gsi_create_from_data);
LEFT_OUT(pgm_recvmsgv);
LEFT_OUT(pgm_send);
LEFT_OUT(pgm_setsockopt);
LEFT_OUT(pgm_socket);

/* ---- NORM ---- */

NO_VALUE(NORM_INSTANCE_INVALID);
NO_VALUE(NORM_NODE_ANY);
NO_VALUE(NORM_OBJECT_INVALID);
NO_VALUE(NORM_SESSION_INVALID);
LEFT_OUT(NormCreateInstance);
LEFT_OUT(NormCreateSession);
LEFT_OUT(NormDestroyInstance);
LEFT_OUT(NormDestroySession);
LEFT_OUT(NormGetDescriptor);
LEFT_OUT(NormGetNextEvent);
LEFT_OUT(NormGetRandomSessionId);
LEFT_OUT(NormIsUnicastAddress);
LEFT_OUT(NormNodeDelete);
LEFT_OUT(NormObjectGetType);
LEFT_OUT(NormObjectGetUserData);
LEFT_OUT(NormObjectSetUserData);
LEFT_OUT(NormSetCongestionControl);
LEFT_OUT(NormSetDefaultSyncPolicy);
LEFT_OUT(NormSetDefaultUnicastNack);
LEFT_OUT(NormSetLoopback);
LEFT_OUT(NormSetMulticastInterface);
LEFT_OUT(NormSetRxPortReuse);
LEFT_OUT(NormSetTTL);
LEFT_OUT(NormStartReceiver);
LEFT_OUT(NormStartSender);
LEFT_OUT(NormStopInstance);
LEFT_OUT(NormStopReceiver);
LEFT_OUT(NormStopSender);
LEFT_OUT(NormStreamFlush);
LEFT_OUT(NormStreamOpen);
LEFT_OUT(NormStreamRead);
LEFT_OUT(NormStreamSeekMsgStart);
LEFT_OUT(NormStreamWrite);

/* ---- name services ---- */

/* Of numbers alone. One allocation, freed whole. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
    struct {
        struct addrinfo info;
        struct sockaddr_in address;
    } * made;
    struct in_addr number;
    (void)service;
    if (name == NULL || inet_pton(AF_INET, name, &number) != 1)
        return EAI_NONAME;
    if (hints && hints->ai_family != AF_UNSPEC && hints->ai_family != AF_INET)
        return EAI_FAMILY;
    made = calloc(1, sizeof *made);
    if (made == NULL)
        return EAI_MEMORY;
    made->address.sin_family = AF_INET;
    made->address.sin_addr = number;
    made->info = (struct addrinfo){.ai_family = AF_INET,
                                   .ai_socktype = hints ? hints->ai_socktype : SOCK_STREAM,
                                   .ai_addrlen = sizeof made->address,
                                   .ai_addr = (struct sockaddr *)(void *)&made->address};
    *result = &made->info;
    return 0;
}

void freeaddrinfo(struct addrinfo *result)
{
    free(result);
}

struct passwd *getpwuid(uid_t uid)
{
    (void)uid;
    return NULL;
}

struct group *getgrgid(gid_t gid)
{
    (void)gid;
    return NULL;
}
