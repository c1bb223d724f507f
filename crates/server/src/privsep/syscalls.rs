//! System calls: the few that a pre-login process may use, and those that a session may not.
//!
//! A refused call fails with ENOSYS: the C library and others take that for an old kernel, and
//! continue.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

/// What a pre-login process may do: read and write what it has, wait, map memory, start threads. It
/// opens no file, makes no socket and starts no program.
const PRE_LOGIN: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_futex,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_prctl,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Calls of a pre-login process that reach its own process and descriptors only with these
/// arguments: pre-login processes share an account, so that the kernel would let one send signals
/// to another (also by way of a descriptor's owner) and limit what it may use.
fn own_process_only() -> [(i64, u8, Vec<u64>); 4] {
    let of = |commands: &[i32]| {
        commands
            .iter()
            .map(|c| u64::from(c.unsigned_abs()))
            .collect()
    };
    let descriptor = of(&[
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
        libc::F_DUPFD_CLOEXEC,
    ]);
    [
        (libc::SYS_fcntl, 1, descriptor),
        (libc::SYS_ioctl, 1, vec![libc::FIONBIO]),
        (libc::SYS_prlimit64, 0, vec![0]),
        (libc::SYS_tgkill, 0, vec![u64::from(std::process::id())]),
    ]
}

/// The older names that some architectures have beside them.
#[cfg(target_arch = "x86_64")]
const PRE_LOGIN_OLD: &[i64] = &[
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_arch_prctl,
    libc::SYS_gettimeofday,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const PRE_LOGIN_OLD: &[i64] = &[];

/// What a session never does: start programs, change who it is or what it sees, reach into other
/// processes or the kernel.
const NOT_FOR_SESSIONS: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_clone3,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_personality,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_mknodat,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_process_mrelease,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_setpgid,
];

/// Calls of a session that reach its own process with this argument, and others of its account with
/// any other: anonymous users share one, perhaps with pre-login processes.
fn only_for_oneself() -> [(i64, u8, u64); 3] {
    [
        (libc::SYS_prlimit64, 0, 0),
        (libc::SYS_sched_setaffinity, 0, 0),
        (libc::SYS_tgkill, 0, u64::from(std::process::id())),
    ]
}

/// Commands by which the kernel sends signals of a descriptor to whatever process is named.
fn naming_others() -> [(i64, u8, Vec<u64>); 2] {
    let owners = [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX].map(|c| u64::from(c.unsigned_abs()));
    [
        (libc::SYS_fcntl, 1, owners.to_vec()),
        (libc::SYS_ioctl, 1, vec![FIOSETOWN, SIOCSPGRP]),
    ]
}

// include/uapi/asm-generic/{fcntl,sockios}.h
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;

#[cfg(target_arch = "x86_64")]
const NOT_FOR_SESSIONS_OLD: &[i64] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_mknod,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
];
#[cfg(not(target_arch = "x86_64"))]
const NOT_FOR_SESSIONS_OLD: &[i64] = &[];

/// A filter, or why there is none (an architecture that it is not made for).
pub(super) fn for_pre_login() -> Result<BpfProgram, String> {
    let mut rules = without_conditions(&[PRE_LOGIN, PRE_LOGIN_OLD]);
    // Threads, but no processes. clone3 fails as missing, and the C library falls back to clone.
    rules.insert(libc::SYS_clone, vec![thread(true)?]);
    for (call, argument, values) in own_process_only() {
        let each = values
            .into_iter()
            .map(|value| with(argument, SeccompCmpOp::Eq, value));
        rules.insert(call, each.collect::<Result<_, _>>()?);
    }
    program(rules, REFUSE, SeccompAction::Allow)
}

pub(super) fn for_session() -> Result<BpfProgram, String> {
    let mut rules = without_conditions(&[NOT_FOR_SESSIONS, NOT_FOR_SESSIONS_OLD]);
    rules.insert(libc::SYS_clone, vec![thread(false)?]);
    for (call, argument, own) in only_for_oneself() {
        rules.insert(call, vec![with(argument, SeccompCmpOp::Ne, own)?]);
    }
    for (call, argument, values) in naming_others() {
        let each = values
            .into_iter()
            .map(|value| with(argument, SeccompCmpOp::Eq, value));
        rules.insert(call, each.collect::<Result<_, _>>()?);
    }
    program(rules, SeccompAction::Allow, REFUSE)
}

#[allow(clippy::cast_sign_loss)] // A small constant of the C library.
const REFUSE: SeccompAction = SeccompAction::Errno(libc::ENOSYS as u32);

fn without_conditions(lists: &[&[i64]]) -> BTreeMap<i64, Vec<SeccompRule>> {
    lists
        .concat()
        .into_iter()
        .map(|call| (call, Vec::new()))
        .collect()
}

/// Matches clone where it makes a thread, or where it makes anything else.
fn thread(wanted: bool) -> Result<SeccompRule, String> {
    #[allow(clippy::cast_sign_loss)] // A flag.
    let flag = libc::CLONE_THREAD as u64;
    let operator = SeccompCmpOp::MaskedEq(flag);
    let value = if wanted { flag } else { 0 };
    SeccompCondition::new(0, SeccompCmpArgLen::Qword, operator, value)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(|error| error.to_string())
}

/// Matches where the argument of 32 bits has this value, or another.
fn with(argument: u8, is: SeccompCmpOp, value: u64) -> Result<SeccompRule, String> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, value)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(|error| error.to_string())
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, String> {
    let arch = std::env::consts::ARCH.try_into();
    let arch = arch.map_err(|error| format!("{}: {error}", std::env::consts::ARCH))?;
    let program = SeccompFilter::new(rules, otherwise, matching, arch)
        .and_then(BpfProgram::try_from)
        .map_err(|error| error.to_string())?;
    Ok([&without_x32()[..], &program].concat())
}

/// Refuses the second set of numbers that x86-64 has for its calls (x32, where the kernel is built
/// with it): the architecture is the same, and the lists here do not name them.
#[cfg(target_arch = "x86_64")]
fn without_x32() -> [sock_filter; 3] {
    /// `__X32_SYSCALL_BIT`
    const BIT: u32 = 0x4000_0000;
    let instruction = |code: u32, jf, k| sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: 0,
        jf,
        k,
    };
    [
        // The number is what the data begins with.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, BIT),
        instruction(libc::BPF_RET | libc::BPF_K, 0, u32::from(REFUSE)),
    ]
}
#[cfg(not(target_arch = "x86_64"))]
fn without_x32() -> [sock_filter; 0] {
    []
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_compile_and_the_lists_do_not_overlap() {
        assert!(!for_pre_login().unwrap().is_empty());
        assert!(!for_session().unwrap().is_empty());
        for call in PRE_LOGIN.iter().chain(PRE_LOGIN_OLD) {
            assert!(!NOT_FOR_SESSIONS.contains(call), "{call}");
        }
    }

    /// The verdict of a filter on a call, as the kernel computes it (bpf(4), seccomp(2)).
    #[cfg(target_arch = "x86_64")]
    fn says(program: &[sock_filter], call: i64, arguments: [u64; 6]) -> u32 {
        const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
        let number = u32::try_from(call & 0xffff_ffff).unwrap();
        let mut data = [number.to_ne_bytes(), AUDIT_ARCH_X86_64.to_ne_bytes()].concat();
        data.extend([0; 8]);
        data.extend(arguments.iter().flat_map(|argument| argument.to_ne_bytes()));
        let (mut at, mut sum) = (0, 0_u32);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let jump = |yes: bool| usize::from(if yes { jt } else { jf });
            match code {
                0x20 => {
                    let from = k as usize;
                    sum = u32::from_ne_bytes(data[from..from + 4].try_into().unwrap());
                }
                0x54 => sum &= k,
                0x05 => at += k as usize,
                0x15 => at += jump(sum == k),
                0x25 => at += jump(sum > k),
                0x35 => at += jump(sum >= k),
                0x45 => at += jump(sum & k != 0),
                0x06 => return k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_of_x32_are_refused_to_fronts_and_sessions() {
        let refused = u32::from(REFUSE);
        for program in [for_pre_login().unwrap(), for_session().unwrap()] {
            for call in 0..600_i64 {
                let says = says(&program, call | 0x4000_0000, [0; 6]);
                assert_eq!(says, refused, "{call}");
            }
            assert_eq!(says(&program, -1, [0; 6]), refused);
            let allowed = u32::from(SeccompAction::Allow);
            assert_eq!(says(&program, libc::SYS_read, [0; 6]), allowed);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_on_other_processes_are_refused() {
        let (refused, allowed) = (u32::from(REFUSE), u32::from(SeccompAction::Allow));
        for program in [for_pre_login().unwrap(), for_session().unwrap()] {
            for command in [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX] {
                let arguments = [0, u64::from(command.unsigned_abs()), 1, 0, 0, 0];
                assert_eq!(says(&program, libc::SYS_fcntl, arguments), refused);
            }
            for command in [FIOSETOWN, SIOCSPGRP] {
                let arguments = [0, command, 1, 0, 0, 0];
                assert_eq!(says(&program, libc::SYS_ioctl, arguments), refused);
            }
            for call in [libc::SYS_kill, libc::SYS_ptrace, libc::SYS_setpriority] {
                assert_eq!(says(&program, call, [1; 6]), refused);
            }
            let arguments = [0, u64::from(libc::F_SETFL.unsigned_abs()), 0, 0, 0, 0];
            assert_eq!(says(&program, libc::SYS_fcntl, arguments), allowed);
        }
    }
}
