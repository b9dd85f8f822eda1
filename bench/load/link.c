/* Sockets that may be encrypted, by OpenSSL if the program was compiled with it (WITH_TLS).
 *
 * Certificates are not checked: the servers are this machine's own, and the handshakes are over
 * before anything is measured.
 */

#include "load.h"

#include <errno.h>
#include <sys/socket.h>

#ifdef WITH_TLS

#include <openssl/err.h>
#include <openssl/ssl.h>

enum { FDS_MAX = 1 << 20 };
static SSL *links[FDS_MAX];

void link_encrypt(int fd) {
    static SSL_CTX *context;
    if (!context) {
        context = SSL_CTX_new(TLS_client_method());
        if (!context) die("SSL_CTX_new", NULL);
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_read_ahead(context, 1);
    }
    if (fd >= FDS_MAX) die("too many connections for TLS", NULL);
    SSL *link = SSL_new(context);
    if (!link || !SSL_set_fd(link, fd)) die("SSL_new", NULL);
    if (SSL_connect(link) != 1) die("handshake", ERR_error_string(ERR_get_error(), NULL));
    links[fd] = link;
}

/* Returns what recv and send would for a call that failed. */
static ssize_t failed(SSL *link, int result) {
    int error = SSL_get_error(link, result);
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) errno = EAGAIN;
    else if (error != SSL_ERROR_SYSCALL || !errno) errno = EPROTO;
    return -1;
}

ssize_t link_send(int fd, const void *bytes, size_t count) {
    if (!links[fd]) return send(fd, bytes, count, MSG_NOSIGNAL);
    ERR_clear_error();
    int sent = SSL_write(links[fd], bytes, (int)count);
    return sent > 0 ? sent : failed(links[fd], sent);
}

ssize_t link_receive(int fd, void *into, size_t count) {
    if (!links[fd]) return recv(fd, into, count, 0);
    size_t all = 0;
    do {
        ERR_clear_error();
        int got = SSL_read(links[fd], (char *)into + all, (int)(count - all));
        if (got <= 0) return all ? (ssize_t)all : failed(links[fd], got);
        all += (size_t)got;
    } while (all < count && SSL_has_pending(links[fd]));
    return (ssize_t)all;
}

#else

void link_encrypt(int fd) {
    (void)fd;
    die("this generator was compiled without TLS", NULL);
}

ssize_t link_send(int fd, const void *bytes, size_t count) {
    return send(fd, bytes, count, MSG_NOSIGNAL);
}

ssize_t link_receive(int fd, void *into, size_t count) {
    return recv(fd, into, count, 0);
}

#endif
