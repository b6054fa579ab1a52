"""The container image, made without a container engine: ``python -m deploy.image build``.

In come the lock files of this folder (packages of Debian and of Python, by hash) and the project's
own portable wheel; out go an OCI archive and its list of contents in SPDX. The same inputs give
the same bytes. Everything is held in memory as a `Tree`: nothing is unpacked onto a disk, so
neither umask nor owner of the build machine counts, and no maintainer script runs.
"""
