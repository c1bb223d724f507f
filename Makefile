# The two commands of the README, and what they stand on.

CARGO ?= cargo

.PHONY: help demo test check bench package book

help:
	@echo 'make demo    install what building needs, build and watch data move between a server and a client'
	@echo 'make test    install what the tests need, build, run all tests'
	@echo 'make check   what every commit must pass (no installation)'
	@echo 'make bench   compare with the peers on this machine'
	@echo 'make package a package for the Debian this runs on, a tarball and a wheel, in target/package'
	@echo 'make book    the book as a site in target/book (needs mdBook)'

demo:
	scripts/install-test-deps.sh --build
	$(CARGO) build --release --workspace --bins
	target/release/godwit-lab demo

test:
	scripts/install-test-deps.sh
	$(CARGO) xtask check

check:
	$(CARGO) xtask check

bench:
	scripts/install-test-deps.sh --build
	$(CARGO) xtask bench

package:
	scripts/install-test-deps.sh --build
	scripts/package.sh
	scripts/package-python.sh

book:
	mdbook build
