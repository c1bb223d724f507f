//! From a command to the family that runs it, and from a finished request to the reply it owes.

use std::time::Instant;

use crate::{
    command::{Command, CommandError},
    error::{StorageFailure, storage_reply},
    line::BadLine,
    site::Site,
};

use super::{
    Outcome, Pending, Request, ServerPi,
    purpose::{PassiveForm, Purpose},
};

impl ServerPi {
    pub(super) fn run_line(&mut self, command: Result<Command, CommandError>) {
        self.transfers += u64::from(command.as_ref().is_ok_and(Command::is_transfer));
        match command {
            Ok(command) if self.session.is_logged_in() || self.is_open_to_all(&command) => {
                self.run_command(command);
            }
            Err(error) if self.session.is_logged_in() || is_worth_an_answer(&error) => {
                self.refuse_line(&error);
            }
            _ => self.answer(530, self.login_first()),
        }
    }

    /// Commands that run before login (seen on GCT 13.24). The security words are among them where
    /// a client uses them to find out what is offered, and under TLS those that the examples of RFC
    /// 4217 have before USER.
    fn is_open_to_all(&self, command: &Command) -> bool {
        match command {
            Command::User(_)
            | Command::Pass(_)
            | Command::Feat
            | Command::Help(_)
            | Command::Noop
            | Command::Quit
            | Command::Site(Site::Help) => true,
            Command::Security { verb, .. } => match verb.as_str() {
                "AUTH" | "ADAT" => true,
                "PBSZ" | "PROT" => self.session.security.is_tls(),
                _ => false,
            },
            _ => false,
        }
    }

    /// The command is unknown, and may be a transfer: see [`Self::refuse_line`].
    pub(super) fn refuse_bad_line(&mut self, why: BadLine) {
        self.drop_data_channel();
        let code = match why {
            BadLine::TooLong => 500,
            BadLine::Nul | BadLine::Crs => 501,
        };
        self.answer(code, why.to_string());
    }

    fn refuse_line(&mut self, error: &CommandError) {
        // A transfer that was sent ahead behind a bad address must not run on the former one; and
        // a client that reads the data of a transfer before its reply must not read the data of
        // the next.
        if let CommandError::Syntax { verb, .. }
        | CommandError::Parameter { verb, .. }
        | CommandError::NetworkProtocol { verb } = error
            && matches!(
                verb.as_str(),
                "PASV" | "EPSV" | "SPAS" | "PORT" | "EPRT" | "SPOR" | "RETR" | "ERET"
            )
        {
            self.drop_data_channel();
        }
        self.reply(&error.reply());
    }

    fn run_command(&mut self, command: Command) {
        match command {
            Command::User(user) => self.run_user(user),
            Command::Pass(password) => self.run_pass(password),
            Command::Acct => self.answer(202, "ACCT is superfluous at this server."),
            Command::Quit => self.run_quit(),
            Command::Noop => self.answer(200, "NOOP command successful."),
            Command::Abor => self.run_abort(),
            Command::Help(topic) => self.run_help(topic.as_deref()),
            Command::Feat => self.run_feat(),
            Command::Syst => self.answer(215, "UNIX Type: L8"),
            Command::Lang(language) => self.run_lang(&language),
            Command::Security { verb, argument } => self.run_security(&verb, &argument),

            Command::Opts(opts) => self.run_opts(opts),
            Command::Type(code) => self.run_type(code),
            Command::Mode(mode) => self.run_mode(mode),
            Command::StruFile => self.answer(200, "STRU F ok."),
            Command::Trev { event, seconds } => self.run_trev(event, seconds),
            Command::Sbuf(bytes) => {
                self.set_socket_buffer(bytes);
                self.answer(200, "SBUF Command Successful.");
            }

            Command::Pwd => self.run_pwd(),
            Command::Cwd(path) => self.run_cwd(&path),
            Command::Cdup => self.run_cdup(),
            Command::Mkd(path) => self.run_mkd(&path),
            Command::Rmd(path) => self.run_rmd(&path),
            Command::Dele(path) => self.run_change(&path, Request::RemoveFile),
            Command::Rnfr(path) => self.run_rnfr(&path),
            Command::Rnto(path) => self.run_rnto(&path),
            Command::Size(path) => self.run_size(&path),
            Command::Mdtm(path) => self.run_mdtm(&path),
            Command::Mfmt { modify, path } => self.run_mfmt(modify, &path),
            Command::Cksm {
                algorithm,
                offset,
                length,
                path,
            } => self.run_cksm(algorithm, offset, length, &path),

            Command::Stat(path) => self.run_stat(path.as_ref()),
            Command::Mlst(path) => self.run_mlst(path.as_ref()),
            Command::Mlsc(path) => self.run_mlsc(path.as_ref()),
            Command::Mlsd(path) => self.run_mlsd(path.as_ref()),
            Command::Mlsr(path) => self.run_mlsr(path.as_ref()),
            Command::List(path) => self.run_list(path.as_ref()),
            Command::Nlst(path) => self.run_nlst(path.as_ref()),
            Command::ListAll => self.run_list(None),
            Command::NlstAll => self.run_nlst(None),

            Command::Pasv => self.run_passive(PassiveForm::Pasv),
            Command::Epsv(argument) => self.run_epsv(argument),
            Command::Spas(protocol) => self.run_passive(PassiveForm::Spas(protocol)),
            Command::Port(address) | Command::Eprt(address) => {
                self.run_active(vec![address], false);
            }
            Command::Spor(addresses) => self.run_active(addresses, true),

            Command::Rest(point) => self.run_rest(point),
            Command::Allo(bytes) => self.run_allo(bytes),
            Command::Scks { algorithm, value } => self.run_scks(algorithm, value),
            Command::Retr(path) => self.run_retr(&path, None),
            Command::Eret { region, path } => self.run_retr(&path, Some(region)),
            Command::Stor(path) => self.run_stor(&path),
            Command::Stou => self.run_stou(),
            Command::Appe(path) => self.run_appe(&path),
            Command::Esto { offset, path } => self.run_esto(offset, &path),

            Command::Site(site) => self.run_site(site),
        }
    }

    pub(super) fn on_done(&mut self, now: Instant, result: Result<Outcome, StorageFailure>) {
        self.active_at = now;
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => {}
            Pending::Request(purpose) => self.on_request_done(now, purpose, result),
            Pending::Transfer(transfer) => self.on_transfer_step(transfer, result),
        }
    }

    fn on_request_done(
        &mut self,
        now: Instant,
        purpose: Purpose,
        result: Result<Outcome, StorageFailure>,
    ) {
        let outcome = match (purpose, result) {
            (Purpose::Login { user }, result) => return self.on_login_done(user, result),
            (Purpose::Passive(form), result) => return self.on_listening(form, result),
            (Purpose::Active, result) => return self.on_connect_noted(result),
            (Purpose::Adat, result) => return self.on_adat(result),
            (Purpose::StartTls, result) => return self.on_start_tls(result),
            (Purpose::DataContext, result) => return self.on_data_context(result),
            (Purpose::MakeDirectory(_), Err(failure)) => return self.on_no_directory(&failure),
            (_, Err(failure)) => return self.reply(&storage_reply(&failure)),
            (purpose, Ok(outcome)) => (purpose, outcome),
        };
        match outcome {
            (Purpose::ChangeDirectory(path), Outcome::Done) => self.on_directory_changed(path),
            (Purpose::MakeDirectory(path), Outcome::Done) => self.on_directory_made(&path),
            (Purpose::RenameFrom(path), Outcome::Done) => self.on_rename_source(path),
            (Purpose::Size, Outcome::Facts(facts)) => self.on_size(&facts),
            (Purpose::ModifyTime, Outcome::Facts(facts)) => self.on_modify_time(&facts),
            (Purpose::Facts(path), Outcome::Facts(facts)) => self.on_facts(&path, &facts),
            (Purpose::Status(path), Outcome::Facts(facts)) => self.on_status(now, &path, &facts),
            (Purpose::SetModified { modify, path }, Outcome::Done) => {
                self.on_modified_set(modify, &path);
            }
            (Purpose::Change, Outcome::Done) => self.answer(250, "OK."),
            (Purpose::Change, Outcome::Unlike { found, expected }) => {
                self.on_unlike(found, expected);
            }
            (Purpose::Checksum(_), Outcome::Checksum(hex)) => self.answer(213, hex),
            (Purpose::Checksum(_), Outcome::BlockChecksums(leaves)) => {
                self.reply(&leaves.to_reply())
            }
            (Purpose::WhoAmI, Outcome::Text(name)) => self.answer(200, name),
            (Purpose::ListControl(listing), Outcome::Listing { entries, last }) => {
                self.on_listing_page(listing, entries, last);
            }
            (Purpose::ListControl(listing), Outcome::Done) => {
                self.on_listing_page(listing, Vec::new(), true);
            }
            // The shell broke its contract. The client still needs one reply.
            _ => self.answer(451, "Local error in processing."),
        }
    }
}

fn is_worth_an_answer(error: &CommandError) -> bool {
    match error {
        CommandError::UnknownVerb(_) => true,
        CommandError::Syntax { verb, .. }
        | CommandError::Parameter { verb, .. }
        | CommandError::NetworkProtocol { verb } => matches!(
            verb.as_str(),
            "USER" | "PASS" | "AUTH" | "ADAT" | "FEAT" | "HELP" | "NOOP" | "QUIT"
        ),
    }
}
