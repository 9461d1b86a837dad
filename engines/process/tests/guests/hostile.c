/* A program that tries to get out, in the way that its first argument names. It says `refused` and by which error, or `escaped`; or it is ended.
 * Without an argument it lists the ways: each with who can go it where there are no walls, and what shuts it here.
 *
 * What shuts a way is an error or a signal that nothing but a wall gives for these arguments. EINVAL, EFAULT, EBADF and the like would come of a
 * wrong argument without any wall, and show nothing, unless it says why beside them. Where no valid argument can be had in here (a file system
 * of `fsopen`, say), the signal of a forbidden call is what shows the wall.
 *
 * Numbers of system calls that headers may not know are written out. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Where there are no walls a way can be gone by: */
enum outside {
    NOT_TRIED, /* whoever may; but nobody tries, for it would harm the host or who asks. */
    SOMEBODY,  /* some users on some hosts. */
    ANYBODY,   /* every user on every host. */
};

struct way {
    const char *name;
    long (*go)(void);
    enum outside outside;
    /* What shuts it: errors and signals by their names. `OUT_OF_MEMORY` is an end for want of memory, as the node tells it. */
    const char *shut_by;
};

/* Names a way. They are listed as they stand here: the linker puts them side by side. */
#define LISTED(name, outside, shut_by) \
    static struct way way_##name __attribute__((section("ways"), used, aligned(8))) = {#name, name, outside, shut_by};
#define WAY(name, outside, shut_by, expression)               \
    static long name(void) { return (long)(expression); } \
    LISTED(name, outside, shut_by)
extern struct way __start_ways[], __stop_ways[];

#define CALL(...) syscall(__VA_ARGS__)

/* A process that is none of this one's, and the one that this one was forked from: by their numbers on the host. */
static int outside, zygote;
/* Where the former has memory. */
static void *there;
static char page[4096];

static int opened(const char *path, int flags) {
    return open(path, flags, 0600);
}

/* The file of a library that this program uses. */
static const char *library(void) {
    Dl_info info;
    return dladdr((void *)printf, &info) ? info.dli_fname : "there is none";
}

/* A child that waits to be ended, and a descriptor for it, which `clone` gives where `pidfd_open` is none. */
static int child_descriptor = -1;
static pid_t child(void) {
    pid_t process = (pid_t)CALL(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, &child_descriptor, 0, 0);
    if (process == 0) for (;;) pause();
    return process;
}
static long ended(pid_t process, long result) {
    int error = errno;
    kill(process, SIGKILL);
    waitpid(process, 0, 0);
    errno = error;
    return result;
}

/* Networks. */
WAY(inet_socket, ANYBODY, "EPERM", socket(AF_INET, SOCK_STREAM, 0))
WAY(inet6_socket, SOMEBODY, "EPERM", socket(AF_INET6, SOCK_DGRAM, 0))
WAY(unix_socket, ANYBODY, "EPERM", socket(AF_UNIX, SOCK_STREAM, 0))
WAY(raw_socket, SOMEBODY, "EPERM", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP))
WAY(packet_socket, SOMEBODY, "EPERM", socket(AF_PACKET, SOCK_RAW, 0))
WAY(netlink_socket, ANYBODY, "EPERM", socket(AF_NETLINK, SOCK_RAW, 0))
WAY(vsock_socket, SOMEBODY, "EPERM", socket(AF_VSOCK, SOCK_STREAM, 0))
WAY(socket_pair, ANYBODY, "EPERM", socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){0, 0}))
static long listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int file = socket(AF_INET, SOCK_STREAM, 0);
    if (file < 0 || bind(file, (struct sockaddr *)&address, sizeof address) < 0) return -1;
    return listen(file, 1);
}
LISTED(listen_on_loopback, ANYBODY, "EPERM")

/* Other processes. */
WAY(trace_me, ANYBODY, "SIGSYS", ptrace(PTRACE_TRACEME, 0, 0, 0))
static long trace_a_child(void) {
    pid_t process = child();
    return process < 0 ? -1 : ended(process, ptrace(PTRACE_SEIZE, process, 0, 0));
}
LISTED(trace_a_child, ANYBODY, "SIGSYS")
WAY(trace_outside, SOMEBODY, "SIGSYS", ptrace(PTRACE_ATTACH, outside, 0, 0))
WAY(seize_first, NOT_TRIED, "SIGSYS", ptrace(PTRACE_SEIZE, 1, 0, 0))
static long read_memory_of(int process) {
    struct iovec here = {page, sizeof page}, remote = {there, sizeof page};
    return process_vm_readv(process, &here, 1, &remote, 1, 0);
}
WAY(read_memory_outside, SOMEBODY, "SIGSYS", read_memory_of(outside))
static long write_memory_outside(void) {
    struct iovec here = {page, 1}, remote = {there, 1};
    return process_vm_writev(outside, &here, 1, &remote, 1, 0);
}
LISTED(write_memory_outside, SOMEBODY, "SIGSYS")
WAY(signal_outside, ANYBODY, "ESRCH", kill(outside, 0))
WAY(end_outside, ANYBODY, "ESRCH", kill(outside, SIGKILL))
WAY(signal_group_outside, ANYBODY, "ESRCH", kill(-outside, 0))
WAY(signal_thread_outside, ANYBODY, "ESRCH", CALL(SYS_tgkill, outside, outside, 0))
static long queue_signal_outside(void) {
    siginfo_t about = {.si_code = SI_QUEUE};
    return CALL(SYS_rt_sigqueueinfo, outside, SIGUSR1, &about);
}
LISTED(queue_signal_outside, ANYBODY, "EPERM")
static long have_outside_signalled(void) {
    int ends[2];
    return pipe(ends) < 0 ? -1 : fcntl(ends[0], F_SETOWN, outside);
}
LISTED(have_outside_signalled, ANYBODY, "ESRCH")
WAY(open_process_outside, ANYBODY, "ENOSYS", CALL(434, outside, 0))
static long take_a_descriptor(void) {
    pid_t process = child();
    return process < 0 ? -1 : ended(process, CALL(438, child_descriptor, 0, 0));
}
LISTED(take_a_descriptor, SOMEBODY, "SIGSYS")
WAY(compare_processes, SOMEBODY, "EPERM", CALL(SYS_kcmp, outside, getpid(), 0, 1, 1))
WAY(limit_outside, ANYBODY, "EPERM", CALL(SYS_prlimit64, outside, RLIMIT_CPU, 0, page))
WAY(robust_list_outside, SOMEBODY, "EPERM", CALL(SYS_get_robust_list, outside, page, page + 8))
static long schedule_outside(void) {
    memset(page, 0xff, sizeof page);
    return CALL(SYS_sched_setaffinity, outside, sizeof page, page);
}
LISTED(schedule_outside, ANYBODY, "EPERM")
WAY(priority_outside, ANYBODY, "EPERM", setpriority(PRIO_PROCESS, outside, 19))

/* The zygote: by its number on the host, and as a parent, which has none in here. */
WAY(name_its_parent, ANYBODY, "ESRCH", getppid() > 0 ? getppid() : (errno = ESRCH, -1))
WAY(end_zygote, ANYBODY, "ESRCH", kill(zygote, SIGKILL))
WAY(end_zygotes_thread, ANYBODY, "ESRCH", CALL(SYS_tgkill, zygote, zygote, SIGKILL))
WAY(trace_zygote, SOMEBODY, "SIGSYS", ptrace(PTRACE_SEIZE, zygote, 0, 0))
WAY(trace_parent, NOT_TRIED, "SIGSYS", ptrace(PTRACE_SEIZE, getppid(), 0, 0))
WAY(read_zygotes_memory, SOMEBODY, "SIGSYS", read_memory_of(zygote))
WAY(limit_zygote, ANYBODY, "EPERM", CALL(SYS_prlimit64, zygote, RLIMIT_CPU, 0, page))
static long open_zygotes(const char *file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", zygote, file);
    return opened(path, O_RDONLY);
}
WAY(open_zygotes_descriptors, ANYBODY, "ENOENT", open_zygotes("fd"))
WAY(open_zygotes_root, ANYBODY, "ENOENT", open_zygotes("root"))
/* Process groups cross process namespaces: a guest that were in its zygote's would end that, its neighbours, and the node if that is of the same
 * user. In a group of its own it ends what it has started (not itself, the first process of a namespace), and there is nobody else: who asks looks
 * at the others. (From Linux 6.12 on Landlock keeps it from them, too.) */
static long end_its_group(void) {
    int status;
    pid_t process = fork();
    if (process == 0) _exit(kill(0, SIGKILL) == 0 ? 1 : 2);
    if (process < 0 || waitpid(process, &status, 0) < 0) return -1;
    /* Unless it has reached that one nothing is shown. */
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? (errno = ESRCH, -1) : 0;
}
LISTED(end_its_group, NOT_TRIED, "ESRCH")
WAY(end_all, NOT_TRIED, "ESRCH", kill(-1, SIGKILL))
WAY(join_zygotes_group, NOT_TRIED, "EPERM", setpgid(0, zygote))

/* Mounts and namespaces. */
WAY(mount_proc, NOT_TRIED, "SIGSYS", mount("proc", "/tmp", "proc", 0, 0))
WAY(mount_tmpfs, NOT_TRIED, "SIGSYS", mount("tmpfs", "/tmp", "tmpfs", 0, 0))
WAY(mount_bind, NOT_TRIED, "SIGSYS", mount("/", "/tmp", 0, MS_BIND, 0))
WAY(remount_root, NOT_TRIED, "SIGSYS", mount(0, "/", 0, MS_REMOUNT, 0))
WAY(unmount, NOT_TRIED, "SIGSYS", umount2("/tmp", MNT_DETACH))
WAY(pivot, NOT_TRIED, "SIGSYS", CALL(SYS_pivot_root, ".", "."))
WAY(change_root, SOMEBODY, "SIGSYS", chroot("/tmp"))
WAY(open_a_tree, SOMEBODY, "SIGSYS", CALL(428, AT_FDCWD, "/", 1))
WAY(move_a_mount, NOT_TRIED, "SIGSYS", CALL(429, AT_FDCWD, "/tmp", AT_FDCWD, "/", 0))
WAY(open_a_file_system, SOMEBODY, "SIGSYS", CALL(430, "tmpfs", 0))
WAY(make_a_mount, NOT_TRIED, "SIGSYS", CALL(432, 3, 0, 0))
WAY(change_a_mount, NOT_TRIED, "SIGSYS", CALL(442, AT_FDCWD, "/", 0, page, 32))
WAY(new_user, SOMEBODY, "SIGSYS", unshare(CLONE_NEWUSER))
WAY(new_mounts, SOMEBODY, "SIGSYS", unshare(CLONE_NEWNS))
WAY(new_network, SOMEBODY, "SIGSYS", unshare(CLONE_NEWNET))
static long clone_new_user(void) {
    long process = CALL(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (process == 0) for (;;) pause();
    return process < 0 ? -1 : ended((pid_t)process, process);
}
LISTED(clone_new_user, SOMEBODY, "EPERM")
static long clone3_new_user(void) {
    uint64_t arguments[11] = {CLONE_NEWUSER};
    arguments[4] = SIGCHLD;
    long process = CALL(435, arguments, sizeof arguments);
    if (process == 0) for (;;) pause();
    return process < 0 ? -1 : ended((pid_t)process, process);
}
LISTED(clone3_new_user, SOMEBODY, "ENOSYS")
static long join_a_namespace(void) {
    pid_t process = child();
    return process < 0 ? -1 : ended(process, setns(child_descriptor, CLONE_NEWNET));
}
LISTED(join_a_namespace, SOMEBODY, "SIGSYS")
WAY(open_a_namespace, ANYBODY, "ENOENT", opened("/proc/self/ns/net", O_RDONLY))
WAY(name_the_host, NOT_TRIED, "EPERM", sethostname("escaped", 7))

/* Files. */
WAY(read_passwords, ANYBODY, "ENOENT", opened("/etc/passwd", O_RDONLY))
WAY(read_passwords_by_dots, ANYBODY, "ENOENT", opened("../../../../../../../../../../../../etc/passwd", O_RDONLY))
WAY(read_outside_environment, SOMEBODY, "ENOENT", opened("/proc/1/environ", O_RDONLY))
WAY(read_own_memory, ANYBODY, "ENOENT", opened("/proc/self/mem", O_RDWR))
WAY(read_own_descriptors, ANYBODY, "ENOENT", opened("/proc/self/fd", O_RDONLY))
WAY(read_kernel, SOMEBODY, "ENOENT", opened("/proc/kcore", O_RDONLY))
WAY(read_system, ANYBODY, "ENOENT", opened("/sys/kernel", O_RDONLY))
WAY(join_a_control_group, NOT_TRIED, "ENOENT", opened("/sys/fs/cgroup/cgroup.procs", O_WRONLY))
WAY(join_a_control_group_of_memory, NOT_TRIED, "ENOENT", opened("/sys/fs/cgroup/memory/tasks", O_WRONLY))
WAY(open_memory, NOT_TRIED, "ENOENT", opened("/dev/mem", O_RDWR))
WAY(open_disk, NOT_TRIED, "ENOENT", opened("/dev/vda", O_RDONLY))
WAY(open_virtual_machines, SOMEBODY, "ENOENT", opened("/dev/kvm", O_RDWR))
WAY(open_terminals, SOMEBODY, "ENOENT", opened("/dev/ptmx", O_RDWR | O_NOCTTY))
WAY(open_home, SOMEBODY, "ENOENT", opened("/root", O_RDONLY | O_DIRECTORY))
WAY(write_root, NOT_TRIED, "EROFS EACCES", opened("/escaped", O_WRONLY | O_CREAT))
WAY(write_library, NOT_TRIED, "EROFS EACCES", opened(library(), O_WRONLY))
WAY(remove_library, NOT_TRIED, "EROFS EACCES", unlink(library()))
static long rename_library(void) {
    char moved[4096];
    snprintf(moved, sizeof moved, "%s.moved", library());
    return rename(library(), moved);
}
LISTED(rename_library, NOT_TRIED, "EROFS EACCES")
WAY(link_library, NOT_TRIED, "EPERM", link(library(), "/tmp/c"))
WAY(make_a_link, NOT_TRIED, "EPERM", symlink("/etc/passwd", "/tmp/passwd"))
WAY(make_a_device, NOT_TRIED, "EPERM", mknod("/tmp/device", S_IFBLK | 0600, 0xfd00))
WAY(make_a_pipe, NOT_TRIED, "EPERM", mkfifo("/tmp/pipe", 0600))
static long run_what_it_wrote(void) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/millpond-hostile-%d", getpid());
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0700);
    const char text[] = "\x7f" "ELF";
    /* If it cannot be written nothing is shown. */
    if (file < 0 || write(file, text, sizeof text) < 0) return errno = EINVAL, -1;
    close(file);
    execl(path, path, (char *)0);
    int error = errno;
    unlink(path);
    /* The kernel would have run it, and does not know what it is. */
    return errno = error, error == ENOEXEC ? 0 : -1;
}
LISTED(run_what_it_wrote, SOMEBODY, "EACCES")
WAY(run_a_shell, ANYBODY, "ENOENT", execl("/bin/sh", "sh", "-c", "echo escaped", (char *)0))
WAY(open_by_handle, NOT_TRIED, "SIGSYS", CALL(SYS_open_by_handle_at, AT_FDCWD, page, O_RDONLY))
static long name_a_handle(void) {
    *(uint32_t *)page = 128;
    return CALL(SYS_name_to_handle_at, AT_FDCWD, "/", page, page + 1024, 0);
}
LISTED(name_a_handle, SOMEBODY, "EPERM")
/* That a number is no descriptor's is what is to be found, of all that there can be. */
static long find_descriptors(void) {
    for (int file = 3; file < 4096; file++)
        if (fcntl(file, F_GETFD) >= 0) return file;
    return errno = EBADF, -1;
}
LISTED(find_descriptors, ANYBODY, "EBADF")
WAY(change_its_input, ANYBODY, "EPERM", pwrite(0, "x", 1, 0))
WAY(cut_its_input, ANYBODY, "EPERM", ftruncate(0, 0))
WAY(map_its_input, ANYBODY, "EPERM", mmap(0, 4096, PROT_WRITE, MAP_SHARED, 0, 0) == MAP_FAILED ? -1 : 0)
WAY(make_memory_a_file, ANYBODY, "EPERM", CALL(319, "x", 0))
WAY(make_secret_memory, SOMEBODY, "EPERM", CALL(447, 0))
WAY(watch_files, ANYBODY, "EPERM", CALL(SYS_inotify_init1, 0))
WAY(watch_the_system, SOMEBODY, "EPERM", CALL(SYS_fanotify_init, 0x200, 0))
WAY(fill_the_folder, NOT_TRIED, "ENOSPC SIGXFSZ OUT_OF_MEMORY", ({ int file = open("/tmp/full", O_WRONLY | O_CREAT, 0600); long wrote; while ((wrote = write(file, page, sizeof page)) > 0); wrote; }))

/* The kernel. */
WAY(ring_of_calls, SOMEBODY, "SIGSYS", CALL(425, 8, page))
WAY(faults_of_its_own, SOMEBODY, "SIGSYS", CALL(SYS_userfaultfd, O_CLOEXEC | 1))
WAY(keys, SOMEBODY, "SIGSYS", CALL(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 1))
WAY(add_a_key, SOMEBODY, "SIGSYS", CALL(SYS_add_key, "user", "x", "x", 1, KEY_SPEC_PROCESS_KEYRING))
WAY(request_a_key, NOT_TRIED, "SIGSYS", CALL(SYS_request_key, "user", "x", 0, KEY_SPEC_PROCESS_KEYRING))
static long kernel_programs(void) {
    union bpf_attr array;
    memset(&array, 0, sizeof array);
    array.map_type = BPF_MAP_TYPE_ARRAY;
    array.key_size = array.value_size = 4;
    array.max_entries = 1;
    return CALL(SYS_bpf, BPF_MAP_CREATE, &array, sizeof array);
}
LISTED(kernel_programs, SOMEBODY, "SIGSYS")
static long performance_events(void) {
    struct perf_event_attr clock = {
        .type = PERF_TYPE_SOFTWARE, .size = sizeof clock, .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1,
    };
    return CALL(SYS_perf_event_open, &clock, 0, -1, -1, 0);
}
LISTED(performance_events, SOMEBODY, "SIGSYS")
WAY(load_a_module, NOT_TRIED, "SIGSYS", CALL(SYS_init_module, page, sizeof page, ""))
WAY(load_a_module_file, NOT_TRIED, "SIGSYS", CALL(SYS_finit_module, 0, "", 0))
WAY(load_a_kernel, NOT_TRIED, "SIGSYS", CALL(SYS_kexec_load, 0, 0, 0, 0))
WAY(restart_the_host, NOT_TRIED, "SIGSYS", CALL(SYS_reboot, 0xfee1dead, 672274793, 0x1234567, 0))
WAY(swap, NOT_TRIED, "SIGSYS", CALL(SYS_swapon, "/tmp/full", 0))
WAY(accounts, NOT_TRIED, "SIGSYS", CALL(SYS_acct, "/tmp/full"))
WAY(set_the_time, NOT_TRIED, "SIGSYS", CALL(SYS_settimeofday, &(struct timeval){1, 0}, 0))
WAY(set_a_clock, NOT_TRIED, "SIGSYS", clock_settime(CLOCK_REALTIME, &(struct timespec){1, 0}))
WAY(read_the_kernels_log, SOMEBODY, "EPERM", CALL(SYS_syslog, 3, page, sizeof page))
WAY(quotas, NOT_TRIED, "EPERM", CALL(SYS_quotactl, 0x80000100, 0, 0, 0))
WAY(move_pages, SOMEBODY, "EPERM", CALL(SYS_move_pages, outside, 0, 0, 0, 0, 0))
WAY(memory_policy, SOMEBODY, "EPERM", CALL(SYS_set_mempolicy, 0, 0, 0))
WAY(personality_of_another, SOMEBODY, "EPERM", CALL(SYS_personality, 0x0040000))
/* Of a terminal where there are any. In here it is the number of the request that is refused, of whatever file. */
static long type_into_terminal(void) {
    int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    return ioctl(terminal < 0 ? 0 : terminal, TIOCSTI, "x");
}
LISTED(type_into_terminal, SOMEBODY, "EPERM")

/* Rights and limits. */
WAY(become_root, SOMEBODY, "EPERM", setuid(0))
WAY(become_roots_group, SOMEBODY, "EPERM", setgid(0))
WAY(join_groups, SOMEBODY, "EPERM", CALL(SYS_setgroups, 0, 0))
static long take_capabilities(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{1, 1, 0}, {0, 0, 0}};
    return CALL(SYS_capset, &head, data);
}
LISTED(take_capabilities, SOMEBODY, "EPERM")
WAY(keep_capabilities, ANYBODY, "EPERM", prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
WAY(outlive_its_parent, ANYBODY, "EPERM", prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0))
WAY(become_a_reaper, ANYBODY, "EPERM", prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
WAY(be_dumped, ANYBODY, "EPERM", prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
static long filter_of_its_own(void) {
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, 0x7fff0000);
    struct sock_fprog program = {1, &allow};
    /* A guest is so already, and may not say it. */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return CALL(SYS_seccomp, 1, 0, &program);
}
LISTED(filter_of_its_own, ANYBODY, "EPERM")
WAY(fence_of_its_own, SOMEBODY, "EPERM", CALL(444, 0, 0, 1))
static long raise_a_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return errno = EINVAL, -1;
    limit.rlim_cur = limit.rlim_max += 1;
    return setrlimit(RLIMIT_NOFILE, &limit);
}
LISTED(raise_a_limit, SOMEBODY, "EPERM")
WAY(raise_its_time, SOMEBODY, "EPERM", setrlimit(RLIMIT_CPU, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}))
WAY(real_time, SOMEBODY, "EPERM", sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){1}))
WAY(go_first, SOMEBODY, "EACCES", setpriority(PRIO_PROCESS, 0, -20))
WAY(lock_memory, SOMEBODY, "EPERM", mlockall(MCL_CURRENT | MCL_FUTURE))
WAY(lowest_memory, SOMEBODY, "EPERM", mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0)
WAY(shared_memory, ANYBODY, "EPERM", mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0)
static long large_memory(void) {
    char *all = mmap(0, 1l << 32, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return -1;
    for (long at = 0; at < 1l << 32; at += 4096) all[at] = 1;
    return 0;
}
LISTED(large_memory, NOT_TRIED, "ENOMEM OUT_OF_MEMORY")
static long bomb_of_processes(void) {
    for (int children = 0; children < 200; children++) {
        pid_t process = fork();
        if (process < 0) return -1;
        if (process == 0) for (;;) pause();
    }
    return 0;
}
LISTED(bomb_of_processes, NOT_TRIED, "EAGAIN")

/* Messages between processes. What is made outside goes again. */
static long shared_segment(void) {
    int made = shmget(0x6d706f6e, 4096, IPC_CREAT | 0600);
    if (made >= 0) shmctl(made, IPC_RMID, 0);
    return made;
}
LISTED(shared_segment, SOMEBODY, "EPERM")
static long message_queue(void) {
    int made = msgget(0x6d706f6e, IPC_CREAT | 0600);
    if (made >= 0) msgctl(made, IPC_RMID, 0);
    return made;
}
LISTED(message_queue, SOMEBODY, "EPERM")
static long semaphores(void) {
    int made = semget(0x6d706f6e, 1, IPC_CREAT | 0600);
    if (made >= 0) semctl(made, 0, IPC_RMID);
    return made;
}
LISTED(semaphores, SOMEBODY, "EPERM")
static long posix_queue(void) {
    long made = CALL(SYS_mq_open, "millpond-hostile", O_CREAT | O_RDWR, 0600, 0);
    if (made >= 0) CALL(SYS_mq_unlink, "millpond-hostile");
    return made;
}
LISTED(posix_queue, SOMEBODY, "EPERM")

/* Other ways into the kernel. */
#ifdef __x86_64__
WAY(ports, SOMEBODY, "SIGSYS", CALL(SYS_ioperm, 0x80, 1, 1))
WAY(all_ports, SOMEBODY, "SIGSYS", CALL(SYS_iopl, 3))
WAY(local_descriptors, SOMEBODY, "EPERM", CALL(SYS_modify_ldt, 0, page, sizeof page))
static long calls_of_32_bits(void) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
    return result;
}
/* A kernel without these calls answers the instruction with SIGSEGV, as a wall: there is nothing behind it. */
LISTED(calls_of_32_bits, SOMEBODY, "SIGSYS SIGSEGV")
/* ENOSYS would be a kernel's that has none, without any wall. */
WAY(calls_of_x32, SOMEBODY, "EPERM", CALL(0x40000000 | SYS_getpid))
#endif

/* A child that would write for ever, and a parent that leaves once it is told to. */
static void leave(int signal) {
    (void)signal;
    _exit(0);
}
static void write_after_the_end(void) {
    signal(SIGUSR1, leave);
    int is_child = fork() == 0;
    for (;;) {
        if (!is_child || write(1, "x", 1) < 0) pause();
    }
}

/* Somebody to be tried: it says where it has memory, and waits until nobody wants it any more. */
static int be_outside(void) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    printf("%p\n", (void *)page);
    fflush(stdout);
    while (read(0, page, 1) > 0);
    return 0;
}

int main(int count, char **arguments) {
    if (count < 2) {
        for (const struct way *way = __start_ways; way < __stop_ways; way++) {
            const char *const outsides[] = {"not_tried", "somebody", "anybody"};
            printf("%s %s %s\n", way->name, outsides[way->outside], way->shut_by);
        }
        return 0;
    }
    const char *wanted = arguments[1];
    if (!strcmp(wanted, "write_after_the_end")) write_after_the_end();
    if (!strcmp(wanted, "be_outside")) return be_outside();
    if (count < 5) return 2;
    outside = atoi(arguments[2]);
    zygote = atoi(arguments[3]);
    there = (void *)strtoul(arguments[4], 0, 16);
    for (const struct way *way = __start_ways; way < __stop_ways; way++) {
        if (strcmp(wanted, way->name)) continue;
        errno = 0;
        long result = way->go();
        const char *error = strerrorname_np(errno);
        if (result >= 0) printf("escaped: %ld\n", result);
        else printf("refused: %s\n", error ? error : "for no reason");
        return 0;
    }
    return 2;
}
