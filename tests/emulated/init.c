// The only program of the emulated machine: runs the host's command, reports how it ended, and
// switches the machine off.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

// Reads a file of NUL-terminated strings into a NULL-terminated vector.
static char **strings(const char *path) {
    static char empty[1];
    char **list = calloc(4096, sizeof *list), *text = empty;
    size_t n = 0, length = 0;
    FILE *f = fopen(path, "r");
    if (f && fseek(f, 0, SEEK_END) == 0) {
        length = ftell(f);
        rewind(f);
        text = calloc(length + 1, 1);
        length = fread(text, 1, length, f);
        fclose(f);
    }
    for (char *s = text; s < text + length && n < 4095; s += strlen(s) + 1) list[n++] = s;
    return list;
}

// A serial line, as bytes.
static int line(const char *path) {
    int fd = open(path, O_RDWR | O_NOCTTY);
    struct termios t;
    if (fd >= 0 && tcgetattr(fd, &t) == 0) {
        cfmakeraw(&t);
        cfsetspeed(&t, B115200);
        tcsetattr(fd, TCSANOW, &t);
    }
    return fd;
}

int main(void) {
    mkdir("/dev", 0755), mkdir("/proc", 0755), mkdir("/sys", 0755), mkdir("/tmp", 01777);
    mount("dev", "/dev", "devtmpfs", 0, 0);
    mount("proc", "/proc", "proc", 0, 0);
    mount("sys", "/sys", "sysfs", 0, 0);
    int control = line("/dev/ttyS0"), output = line("/dev/ttyS1"), null = open("/dev/null", O_RDONLY);
    char **argv = strings("/emulated/args"), **env = strings("/emulated/env");
    char **where = strings("/emulated/cwd");

    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    pid_t child = fork();
    if (child == 0) {
        dup2(null, 0), dup2(output, 1), dup2(output, 2);
        setsid();
        if (where[0] && chdir(where[0])) perror(where[0]), _exit(126);
        execve("/emulated/program", argv, env);
        perror("/emulated/program");
        _exit(127);
    }
    int status = 0, code;
    for (;;) {
        pid_t ended = wait(&status);
        if (ended == child || (ended < 0 && errno != EINTR)) break;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (WIFSIGNALED(status)) dprintf(output, "emulated: killed by signal %d\n", WTERMSIG(status));
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    tcdrain(output);
    dprintf(control, "\nemulated: exit %d after %.3f s of its own time, peak %ld KiB\n", code,
            (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9, used.ru_maxrss);
    tcdrain(control);
    reboot(RB_POWER_OFF);
    for (;;) pause();
}
