/* Runs a kernel that wasm2c has made C of: as much of WASI 0.1 as a kernel uses. */
#include "kernel.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

struct Z_wasi_snapshot_preview1_instance_t {
    Z_kernel_instance_t *kernel;
    const char *arguments;
    u32 count, size;
};
typedef struct Z_wasi_snapshot_preview1_instance_t Host;

enum { SUCCESS = 0, BAD_DESCRIPTOR = 8 };

/* The kernels are ours: what they ask for is not checked. */
static void *at(Host *host, u32 address)
{
    return host->kernel->w2c_memory.data + address;
}

static void put(Host *host, u32 address, u32 value)
{
    memcpy(at(host, address), &value, sizeof value);
}

static u32 get(Host *host, u32 address)
{
    u32 value;
    memcpy(&value, at(host, address), sizeof value);
    return value;
}

u32 Z_wasi_snapshot_preview1Z_args_sizes_get(Host *host, u32 count, u32 size)
{
    put(host, count, host->count);
    put(host, size, host->size);
    return SUCCESS;
}

u32 Z_wasi_snapshot_preview1Z_args_get(Host *host, u32 vector, u32 buffer)
{
    memcpy(at(host, buffer), host->arguments, host->size);
    for (u32 i = 0, from = 0; i < host->count; i++) {
        put(host, vector + 4 * i, buffer + from);
        from += (u32)strlen(host->arguments + from) + 1;
    }
    return SUCCESS;
}

u32 Z_wasi_snapshot_preview1Z_clock_time_get(Host *host, u32 clock, u64 precision, u32 address)
{
    (void)clock, (void)precision;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    u64 now = (u64)time.tv_sec * 1000000000 + (u64)time.tv_nsec;
    memcpy(at(host, address), &now, sizeof now);
    return SUCCESS;
}

u32 Z_wasi_snapshot_preview1Z_fd_write(Host *host, u32 file, u32 vectors, u32 count, u32 written)
{
    u32 whole = 0;
    for (u32 i = 0; i < count; i++) {
        u32 from = get(host, vectors + 8 * i), length = get(host, vectors + 8 * i + 4);
        fwrite(at(host, from), 1, length, file == 1 ? stdout : stderr);
        whole += length;
    }
    put(host, written, whole);
    return SUCCESS;
}

u32 Z_wasi_snapshot_preview1Z_fd_fdstat_get(Host *host, u32 file, u32 address)
{
    (void)file;
    /* A character device. */
    memset(at(host, address), 0, 24);
    *(u8 *)at(host, address) = 2;
    return SUCCESS;
}

u32 Z_wasi_snapshot_preview1Z_fd_close(Host *host, u32 file)
{
    (void)host, (void)file;
    return SUCCESS;
}

u32 Z_wasi_snapshot_preview1Z_fd_seek(Host *host, u32 file, u64 offset, u32 whence, u32 address)
{
    (void)host, (void)file, (void)offset, (void)whence, (void)address;
    return BAD_DESCRIPTOR;
}

void Z_wasi_snapshot_preview1Z_proc_exit(Host *host, u32 status)
{
    (void)host;
    fflush(stdout);
    exit((int)status);
}

int main(int argc, char **argv)
{
    char arguments[64];
    int size = snprintf(arguments, sizeof arguments, "kernel%c%s%c", 0, argc > 1 ? argv[1] : "1", 0);
    Z_kernel_instance_t kernel;
    Host host = {&kernel, arguments, 2, (u32)size};
    wasm_rt_init();
    Z_kernel_init_module();
    Z_kernel_instantiate(&kernel, &host);
    Z_kernelZ__start(&kernel);
    Z_kernel_free(&kernel);
    return 0;
}
