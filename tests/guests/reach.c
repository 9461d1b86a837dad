/* Tries to reach out of its sandbox, and says what it could reach: one line for each attempt, `refused` or `reached`. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void report(const char *what, int reached)
{
    printf("%s: %s\n", what, reached ? "reached" : "refused");
}

int main(void)
{
    static const char *const paths[] = { "/", ".", "/etc/passwd", "../Cargo.toml", "/dev/null" };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        report(paths[i], open(paths[i], O_RDONLY) >= 0);
    report("create file", open("left-behind", O_CREAT | O_WRONLY, 0600) >= 0);
    struct stat status;
    int others = 0;
    for (int fd = 3; fd < 256; fd++)
        others += fstat(fd, &status) == 0;
    report("other descriptors", others > 0);
    report("HOME", getenv("HOME") != NULL);
    report("PATH", getenv("PATH") != NULL);
    return 0;
}
