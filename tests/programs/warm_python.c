// Stands in for the Python that lazy builds and links start: a process that has imported lazyck
// already forks one with these words, directory, environment and streams. The words are sent as
// they are, each ended by a NUL: their number, they, the directory, the environment. The answer is
// the status.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

extern char** environ;

static void say(int fd, const char* text) {
    size_t left = strlen(text) + 1;
    for (ssize_t sent; left > 0; text += sent, left -= (size_t)sent) {
        if ((sent = write(fd, text, left)) <= 0) {
            exit(125);
        }
    }
}

int main(int argc, char** argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SOCKET};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), streams[3] = {0, 1, 2};
    char room[CMSG_SPACE(sizeof streams)] = {0}, text[4096], first = '+';
    struct iovec one = {&first, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr* control = CMSG_FIRSTHDR(&message);
    *control =
        (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof streams)};
    memcpy(CMSG_DATA(control), streams, sizeof streams);
    if (connect(fd, (struct sockaddr*)&address, sizeof address) != 0 || sendmsg(fd, &message, 0) != 1) {
        return 125;
    }
    snprintf(text, sizeof text, "%d", argc);
    say(fd, text);
    for (int i = 0; i < argc; i++) {
        say(fd, argv[i]);
    }
    say(fd, getcwd(text, sizeof text) ? text : "/");
    for (char** variable = environ; *variable; variable++) {
        say(fd, *variable);
    }
    shutdown(fd, SHUT_WR);
    unsigned char status = 125;
    return read(fd, &status, 1) == 1 ? status : 125;
}
