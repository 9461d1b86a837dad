/* A program that tries to get out, in the way that its first argument names. It says `refused` and why, or `escaped`; or it is ended. Without
 * an argument it lists the ways. Numbers of system calls that headers may not know are written out. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
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
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The process that waits for this one's answer, as the host counts. */
static int outside;
static char page[4096];

static int opened(const char *path, int flags) {
    int file = open(path, flags, 0600);
    return file;
}

#define CALL(...) syscall(__VA_ARGS__)
#define WAY(name, expression) static long name(void) { return (long)(expression); }

/* Networks. */
WAY(inet_socket, socket(AF_INET, SOCK_STREAM, 0))
WAY(inet6_socket, socket(AF_INET6, SOCK_DGRAM, 0))
WAY(unix_socket, socket(AF_UNIX, SOCK_STREAM, 0))
WAY(raw_socket, socket(AF_INET, SOCK_RAW, IPPROTO_ICMP))
WAY(packet_socket, socket(AF_PACKET, SOCK_RAW, 0))
WAY(netlink_socket, socket(AF_NETLINK, SOCK_RAW, 0))
WAY(vsock_socket, socket(AF_VSOCK, SOCK_STREAM, 0))
WAY(socket_pair, socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){0, 0}))

/* Other processes. */
WAY(trace_me, ptrace(PTRACE_TRACEME, 0, 0, 0))
WAY(trace_outside, ptrace(PTRACE_ATTACH, outside, 0, 0))
WAY(seize_first, ptrace(PTRACE_SEIZE, 1, 0, 0))
static long read_memory_of(int process) {
    struct iovec here = {page, sizeof page}, there = {(void *)page, sizeof page};
    return process_vm_readv(process, &here, 1, &there, 1, 0);
}
WAY(read_memory_outside, read_memory_of(outside))
static long write_memory_outside(void) {
    struct iovec here = {page, 1}, there = {(void *)page, 1};
    return process_vm_writev(outside, &here, 1, &there, 1, 0);
}
WAY(signal_outside, kill(outside, 0))
WAY(end_outside, kill(outside, SIGKILL))
WAY(signal_parent, getppid() ? kill(getppid(), 0) : (errno = ESRCH, -1))
WAY(signal_group_outside, kill(-outside, 0))
WAY(signal_thread_outside, CALL(SYS_tgkill, outside, outside, 0))
WAY(queue_signal_outside, CALL(SYS_rt_sigqueueinfo, outside, SIGUSR1, page))
WAY(open_process_outside, CALL(434, outside, 0))
WAY(take_descriptor_outside, CALL(438, 3, 0, 0))
WAY(compare_processes, CALL(SYS_kcmp, outside, getpid(), 0, 1, 1))
WAY(limit_outside, CALL(SYS_prlimit64, outside, RLIMIT_CPU, 0, page))
WAY(robust_list_outside, CALL(SYS_get_robust_list, outside, page, page + 8))
WAY(schedule_outside, CALL(SYS_sched_setaffinity, outside, 8, page))
WAY(priority_outside, setpriority(PRIO_PROCESS, outside, 19))

/* Mounts and namespaces. */
WAY(mount_proc, mount("proc", "/tmp", "proc", 0, 0))
WAY(mount_tmpfs, mount("tmpfs", "/tmp", "tmpfs", 0, 0))
WAY(mount_bind, mount("/", "/tmp", 0, MS_BIND, 0))
WAY(remount_root, mount(0, "/", 0, MS_REMOUNT, 0))
WAY(unmount, umount2("/tmp", MNT_DETACH))
WAY(pivot, CALL(SYS_pivot_root, ".", "."))
WAY(change_root, chroot("/tmp"))
WAY(open_a_tree, CALL(428, AT_FDCWD, "/", 1))
WAY(move_a_mount, CALL(429, AT_FDCWD, "/tmp", AT_FDCWD, "/", 0))
WAY(open_a_file_system, CALL(430, "proc", 0))
WAY(make_a_mount, CALL(432, 3, 0, 0))
WAY(change_a_mount, CALL(442, AT_FDCWD, "/", 0, page, 32))
WAY(new_user, unshare(CLONE_NEWUSER))
WAY(new_mounts, unshare(CLONE_NEWNS))
WAY(new_network, unshare(CLONE_NEWNET))
WAY(clone_new_user, CALL(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0))
static long clone3_new_user(void) {
    uint64_t arguments[11] = {CLONE_NEWUSER};
    arguments[4] = SIGCHLD;
    return CALL(435, arguments, sizeof arguments);
}
WAY(join_a_namespace, setns(0, 0))
WAY(name_the_host, sethostname("escaped", 7))

/* Files. */
WAY(read_passwords, opened("/etc/passwd", O_RDONLY))
WAY(read_passwords_by_dots, opened("../../../../../../etc/passwd", O_RDONLY))
WAY(read_outside_environment, opened("/proc/1/environ", O_RDONLY))
WAY(read_own_memory, opened("/proc/self/mem", O_RDWR))
WAY(read_own_descriptors, opened("/proc/self/fd", O_RDONLY))
WAY(read_kernel, opened("/proc/kcore", O_RDONLY))
WAY(read_system, opened("/sys/kernel", O_RDONLY))
WAY(join_a_control_group, opened("/sys/fs/cgroup/cgroup.procs", O_WRONLY))
WAY(join_a_control_group_of_memory, opened("/sys/fs/cgroup/memory/tasks", O_WRONLY))
WAY(open_memory, opened("/dev/mem", O_RDWR))
WAY(open_disk, opened("/dev/vda", O_RDONLY))
WAY(open_virtual_machines, opened("/dev/kvm", O_RDWR))
WAY(open_home, opened("/root", O_RDONLY | O_DIRECTORY))
WAY(write_root, opened("/escaped", O_WRONLY | O_CREAT))
WAY(write_library, opened("/lib/x86_64-linux-gnu/libc.so.6", O_WRONLY))
WAY(remove_library, unlink("/lib/x86_64-linux-gnu/libc.so.6"))
WAY(rename_library, rename("/lib/x86_64-linux-gnu/libc.so.6", "/tmp/c"))
WAY(link_library, link("/lib/x86_64-linux-gnu/libc.so.6", "/tmp/c"))
WAY(make_a_link, symlink("/etc/passwd", "/tmp/passwd"))
WAY(make_a_device, mknod("/tmp/device", S_IFBLK | 0600, 0xfd00))
WAY(make_a_pipe, mkfifo("/tmp/pipe", 0600))
static long run_what_it_wrote(void) {
    int file = open("/tmp/program", O_WRONLY | O_CREAT, 0700);
    const char text[] = "\x7f" "ELF";
    if (file < 0 || write(file, text, sizeof text) < 0) return errno = ENOEXEC, -1;
    close(file);
    execl("/tmp/program", "program", (char *)0);
    return errno == ENOEXEC ? 0 : -1;
}
WAY(run_a_shell, execl("/bin/sh", "sh", "-c", "echo escaped", (char *)0))
WAY(open_by_handle, CALL(SYS_open_by_handle_at, AT_FDCWD, page, O_RDONLY))
WAY(name_a_handle, CALL(SYS_name_to_handle_at, AT_FDCWD, "/", page, page, 0))
static long find_descriptors(void) {
    for (int file = 3; file < 4096; file++)
        if (fcntl(file, F_GETFD) >= 0) return file;
    return errno = EBADF, -1;
}
WAY(change_its_input, pwrite(0, "x", 1, 0))
WAY(cut_its_input, ftruncate(0, 0))
WAY(map_its_input, mmap(0, 4096, PROT_WRITE, MAP_SHARED, 0, 0) == MAP_FAILED ? -1 : 0)
WAY(make_memory_a_file, CALL(319, "x", 0))
WAY(make_secret_memory, CALL(447, 0))
WAY(watch_files, CALL(SYS_inotify_init1, 0))
WAY(watch_the_system, CALL(SYS_fanotify_init, 0, 0))
WAY(fill_the_folder, ({ int file = open("/tmp/full", O_WRONLY | O_CREAT, 0600); long wrote; while ((wrote = write(file, page, sizeof page)) > 0); wrote; }))

/* The kernel. */
WAY(ring_of_calls, CALL(425, 8, page))
WAY(faults_of_its_own, CALL(SYS_userfaultfd, 0))
WAY(keys, CALL(SYS_keyctl, KEYCTL_GET_KEYRING_ID, -3, 1))
WAY(add_a_key, CALL(SYS_add_key, "user", "x", "x", 1, -3))
WAY(request_a_key, CALL(SYS_request_key, "user", "x", 0, -3))
WAY(kernel_programs, CALL(SYS_bpf, 0, page, 64))
WAY(performance_events, CALL(SYS_perf_event_open, page, 0, -1, -1, 0))
WAY(load_a_module, CALL(SYS_init_module, page, sizeof page, ""))
WAY(load_a_module_file, CALL(SYS_finit_module, 0, "", 0))
WAY(load_a_kernel, CALL(SYS_kexec_load, 0, 0, 0, 0))
WAY(restart_the_host, CALL(SYS_reboot, 0xfee1dead, 672274793, 0x1234567, 0))
WAY(swap, CALL(SYS_swapon, "/tmp/full", 0))
WAY(accounts, CALL(SYS_acct, "/tmp/full"))
WAY(set_the_time, settimeofday(&(struct timeval){1, 0}, 0))
WAY(set_a_clock, clock_settime(CLOCK_REALTIME, &(struct timespec){1, 0}))
WAY(read_the_kernels_log, CALL(SYS_syslog, 3, page, sizeof page))
WAY(quotas, CALL(SYS_quotactl, 0, 0, 0, 0))
WAY(ports, CALL(SYS_ioperm, 0x80, 1, 1))
WAY(all_ports, CALL(SYS_iopl, 3))
WAY(local_descriptors, CALL(SYS_modify_ldt, 0, page, sizeof page))
WAY(personality_of_another, CALL(SYS_personality, 0x0040000))
WAY(move_pages, CALL(SYS_move_pages, outside, 0, 0, 0, 0, 0))
WAY(memory_policy, CALL(SYS_set_mempolicy, 0, 0, 0))
WAY(type_into_terminal, ioctl(0, TIOCSTI, "x"))

/* Rights and limits. */
WAY(become_root, setuid(0))
WAY(become_roots_group, setgid(0))
WAY(join_groups, CALL(SYS_setgroups, 0, 0))
static long take_capabilities(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
    return CALL(SYS_capset, &head, data);
}
WAY(keep_capabilities, prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
WAY(outlive_its_parent, prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0))
WAY(become_a_reaper, prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
WAY(be_dumped, prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
WAY(filter_of_its_own, CALL(SYS_seccomp, 1, 8, page))
WAY(fence_of_its_own, CALL(444, 0, 0, 1))
WAY(raise_a_limit, setrlimit(RLIMIT_NOFILE, &(struct rlimit){1 << 20, 1 << 20}))
WAY(raise_its_time, setrlimit(RLIMIT_CPU, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}))
WAY(real_time, sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){1}))
WAY(go_first, setpriority(PRIO_PROCESS, 0, -20))
WAY(lock_memory, mlockall(MCL_CURRENT | MCL_FUTURE))
WAY(lowest_memory, mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0)
WAY(shared_memory, mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0)
WAY(large_memory, mmap(0, 1l << 32, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0)
static long bomb_of_processes(void) {
    for (int children = 0; children < 200; children++) {
        pid_t child = fork();
        if (child < 0) return -1;
        if (child == 0) for (;;) pause();
    }
    return 0;
}

/* Messages between processes. */
WAY(shared_segment, CALL(SYS_shmget, 0x6d706f6e, 4096, 01600))
WAY(message_queue, CALL(SYS_msgget, 0x6d706f6e, 01600))
WAY(semaphores, CALL(SYS_semget, 0x6d706f6e, 1, 01600))
WAY(posix_queue, CALL(SYS_mq_open, "x", O_CREAT | O_RDWR, 0600, 0))

/* Other ways into the kernel. */
#ifdef __x86_64__
static long calls_of_32_bits(void) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
    return result;
}
WAY(calls_of_x32, CALL(0x40000000 | SYS_getpid))
#endif

#define NAMED(name) {#name, name}
static const struct { const char *name; long (*way)(void); } WAYS[] = {
    NAMED(inet_socket), NAMED(inet6_socket), NAMED(unix_socket), NAMED(raw_socket), NAMED(packet_socket),
    NAMED(netlink_socket), NAMED(vsock_socket), NAMED(socket_pair),
    NAMED(trace_me), NAMED(trace_outside), NAMED(seize_first), NAMED(read_memory_outside), NAMED(write_memory_outside),
    NAMED(signal_outside), NAMED(end_outside), NAMED(signal_parent), NAMED(signal_group_outside),
    NAMED(signal_thread_outside), NAMED(queue_signal_outside), NAMED(open_process_outside),
    NAMED(take_descriptor_outside), NAMED(compare_processes), NAMED(limit_outside), NAMED(robust_list_outside),
    NAMED(schedule_outside), NAMED(priority_outside),
    NAMED(mount_proc), NAMED(mount_tmpfs), NAMED(mount_bind), NAMED(remount_root), NAMED(unmount), NAMED(pivot),
    NAMED(change_root), NAMED(open_a_tree), NAMED(move_a_mount), NAMED(open_a_file_system), NAMED(make_a_mount),
    NAMED(change_a_mount), NAMED(new_user), NAMED(new_mounts), NAMED(new_network), NAMED(clone_new_user),
    NAMED(clone3_new_user), NAMED(join_a_namespace), NAMED(name_the_host),
    NAMED(read_passwords), NAMED(read_passwords_by_dots), NAMED(read_outside_environment), NAMED(read_own_memory),
    NAMED(read_own_descriptors), NAMED(read_kernel), NAMED(read_system), NAMED(join_a_control_group),
    NAMED(join_a_control_group_of_memory), NAMED(open_memory), NAMED(open_disk), NAMED(open_virtual_machines),
    NAMED(open_home), NAMED(write_root), NAMED(write_library), NAMED(remove_library), NAMED(rename_library),
    NAMED(link_library), NAMED(make_a_link), NAMED(make_a_device), NAMED(make_a_pipe), NAMED(run_what_it_wrote),
    NAMED(run_a_shell), NAMED(open_by_handle), NAMED(name_a_handle), NAMED(find_descriptors), NAMED(change_its_input),
    NAMED(cut_its_input), NAMED(map_its_input), NAMED(make_memory_a_file), NAMED(make_secret_memory),
    NAMED(watch_files), NAMED(watch_the_system), NAMED(fill_the_folder),
    NAMED(ring_of_calls), NAMED(faults_of_its_own), NAMED(keys), NAMED(add_a_key), NAMED(request_a_key),
    NAMED(kernel_programs), NAMED(performance_events), NAMED(load_a_module), NAMED(load_a_module_file),
    NAMED(load_a_kernel), NAMED(restart_the_host), NAMED(swap), NAMED(accounts), NAMED(set_the_time),
    NAMED(set_a_clock), NAMED(read_the_kernels_log), NAMED(quotas), NAMED(ports), NAMED(all_ports),
    NAMED(local_descriptors), NAMED(personality_of_another), NAMED(move_pages), NAMED(memory_policy),
    NAMED(type_into_terminal),
    NAMED(become_root), NAMED(become_roots_group), NAMED(join_groups), NAMED(take_capabilities),
    NAMED(keep_capabilities), NAMED(outlive_its_parent), NAMED(become_a_reaper), NAMED(be_dumped),
    NAMED(filter_of_its_own), NAMED(fence_of_its_own), NAMED(raise_a_limit), NAMED(raise_its_time), NAMED(real_time),
    NAMED(go_first), NAMED(lock_memory), NAMED(lowest_memory), NAMED(shared_memory), NAMED(large_memory),
    NAMED(bomb_of_processes),
    NAMED(shared_segment), NAMED(message_queue), NAMED(semaphores), NAMED(posix_queue),
#ifdef __x86_64__
    NAMED(calls_of_32_bits), NAMED(calls_of_x32),
#endif
};

/* A child that would write for ever, and a parent that leaves. */
static int write_after_the_end(void) {
    if (fork() == 0) for (;;) if (write(1, "x", 1) < 0) pause();
    return 0;
}

int main(int count, char **arguments) {
    const char *wanted = count > 1 ? arguments[1] : "";
    outside = count > 2 ? atoi(arguments[2]) : 1;
    if (!strcmp(wanted, "write_after_the_end")) return write_after_the_end();
    for (size_t way = 0; way < sizeof WAYS / sizeof *WAYS; way++) {
        if (count < 2) {
            printf("%s\n", WAYS[way].name);
        } else if (!strcmp(wanted, WAYS[way].name)) {
            errno = 0;
            long result = WAYS[way].way();
            if (result >= 0) printf("escaped: %ld\n", result);
            else printf("refused: %s\n", strerror(errno));
            return 0;
        }
    }
    return 0;
}
