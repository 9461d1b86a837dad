/* A pure function: joins the items of its first input set in the order of their names, in capitals, and tells what world it sees.
 * /out/text/joined is the text, those in /out/facts are of the world: the time, random bytes, what it cannot do. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static FILE *fact(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "/out/facts/%s", name);
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(2);
    }
    return file;
}

static void join(const char *set, FILE *out)
{
    char folder[256], path[512];
    struct dirent **entries;
    snprintf(folder, sizeof folder, "/in/%s", set);
    int count = scandir(folder, &entries, NULL, alphasort);
    if (count < 0) {
        perror(folder);
        exit(2);
    }
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        FILE *item = fopen(path, "r");
        if (!item) {
            perror(path);
            exit(2);
        }
        for (int c; (c = getc(item)) != EOF;)
            putc(toupper(c), out);
        fclose(item);
    }
}

int main(int count, char **arguments)
{
    /* By way of another name, as careful programs write. */
    FILE *out = fopen("/tmp/joined", "w");
    if (!out) {
        perror("/tmp/joined");
        return 2;
    }
    join(count > 1 ? arguments[1] : "words", out);
    fclose(out);
    if (rename("/tmp/joined", "/out/text/joined") != 0) {
        perror("rename");
        return 2;
    }
    if (count > 2) {
        FILE *facts = fact("time");
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        fprintf(facts, "%lld.%09ld", (long long)now.tv_sec, now.tv_nsec);
        fclose(facts);
        unsigned char random[8];
        getentropy(random, sizeof random);
        facts = fact("random");
        for (size_t i = 0; i < sizeof random; i++)
            fprintf(facts, "%02x", random[i]);
        fclose(facts);
        facts = fact("refused");
        if (open("/in/words/new", O_CREAT | O_WRONLY, 0600) < 0)
            fprintf(facts, "%s; ", strerror(errno));
        if (open("/etc/passwd", O_RDONLY) < 0)
            fprintf(facts, "%s; ", strerror(errno));
        int variables = 0;
        for (char **variable = environ; *variable; variable++)
            variables++;
        fprintf(facts, "%d variables", variables);
        fclose(facts);
    }
    puts("done");
    return 0;
}
