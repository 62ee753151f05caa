// SPDX-License-Identifier: MIT
/*
 * The library where its path p2p fails or is refused: it says so, and data is right all the same.
 */
#include <sys/stat.h>

#include "engine.h"

int spoil_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int nr = 0;

	expect(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long start, end;

		if (!strstr(line, "/dev/peerlane") || sscanf(line, "%lx-%lx", &start, &end) != 2)
			continue;
		expect(mprotect((void *)start, end - start, PROT_NONE) == 0);
		nr++;
	}
	fclose(maps);
	return nr;
}

/* Transfers that fail by p2p go another way, and the next requests by p2p again. */
int test_engine_fallback(void)
{
	unsigned char *data = make_file("/mnt/fallback", FILE_BYTES, 71);
	unsigned char *seen = host_alloc(FILE_BYTES);
	int fd = open("/mnt/fallback", O_RDONLY);
	struct peerlane_file *file;
	struct engine e;
	size_t before;

	engine_open(&e);
	file = open_file(&e, "/mnt/fallback", O_RDWR | O_DIRECT);
	for (int round = 0; round < 6; round++) {
		bool write = round % 2;
		size_t bytes = round < 2 ? 64 * KIB : 3 * MIB + 100;

		if (round >= 4)
			expect(peerlane_buffer_register(e.ctx, e.gpu, ROOM, 0) == 0);
		before = p2p_bytes(&e);
		expect(peerlane_read(file, e.gpu, MIB, 0) == (ssize_t)MIB);
		expect(p2p_bytes(&e) == before + MIB);
		memcpy(e.model, data, MIB);
		expect(spoil_mappings() > 0);
		fill(e.model, ROOM, 80 + (uint64_t)round);
		expect(peerlane_gpu_copy(e.ctx, e.gpu, e.model, ROOM) == 0);
		before = p2p_bytes(&e);
		if (write) {
			expect(peerlane_write(file, e.gpu, bytes, 8192, 0) == (ssize_t)bytes);
			memcpy(data + 8192, e.model, bytes);
		} else {
			expect(peerlane_read(file, e.gpu, bytes, 8192) == (ssize_t)bytes);
			memcpy(e.model, data + 8192, bytes);
		}
		expect(p2p_bytes(&e) == before);
		check_gpu(&e, "fallback", (size_t)round);
		expect(pread(fd, seen, FILE_BYTES, 0) == (ssize_t)FILE_BYTES);
		expect(memcmp(seen, data, FILE_BYTES) == 0);
		if (round >= 4)
			expect(peerlane_buffer_release(e.ctx, e.gpu) == 0);
	}
	say_direct(p2p_bytes(&e) + TEST_BYTES);
	close(fd);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
	unlink("/mnt/fallback");
	return 0;
}

/* Where the drive cannot reach the GPU, the library says so, and the data is right all the same. */
int test_engine_refused(void)
{
	unsigned char *data = make_file("/mnt/refused", FILE_BYTES, 51);
	char line[1024] = "";
	struct peerlane_verdict v;
	struct peerlane_file *file;
	struct engine e;
	FILE *f = fopen("/proc/cmdline", "r");

	expect(f && fgets(line, sizeof(line), f));
	fclose(f);
	engine_open(&e);
	file = open_file(&e, "/mnt/refused", O_RDWR | O_DIRECT);
	v = verdict(&e, file, PEERLANE_READ, FILE_BYTES);
	expect(!v.usable && v.fix[0]);
	expect(strstr(v.reason, strstr(line, "swiotlb=force") ? "swiotlb" : "does not allow"));
	expect(peerlane_read(file, e.gpu + 4096, ROOM - 4096, 0) == (ssize_t)FILE_BYTES);
	memcpy(e.model + 4096, data, FILE_BYTES);
	check_gpu(&e, "refused", 0);
	expect(p2p_bytes(&e) == 0);
	say_direct(0);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
	unlink("/mnt/refused");
	return 0;
}

/* The module away, or not for this user: said in words, and everything works without it. */
static void without_module(void *arg)
{
	unsigned char *data = arg;
	struct peerlane_verdict v;
	struct peerlane_file *file;
	struct engine e;

	expect(setuid(1000) == 0);
	engine_open(&e);
	file = open_file(&e, "/mnt/users", O_RDONLY | O_DIRECT);
	v = verdict(&e, file, PEERLANE_READ, FILE_BYTES);
	expect(!v.usable && strstr(v.reason, "no permission") && strstr(v.fix, "group peerlane"));
	expect(peerlane_read(file, e.gpu, ROOM, 0) == (ssize_t)FILE_BYTES);
	memcpy(e.model, data, FILE_BYTES);
	check_gpu(&e, "no module", 0);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
}

int test_engine_permission(void)
{
	unsigned char *data = make_file("/mnt/users", FILE_BYTES, 61);

	expect(chmod("/mnt", 0755) == 0 && chmod("/mnt/users", 0644) == 0);
	expect(chmod("/dev/peerlane", 0600) == 0);
	in_child(without_module, data, 0);
	expect(chmod("/dev/peerlane", 0666) == 0);
	say_direct(0);
	unlink("/mnt/users");
	return 0;
}
