// SPDX-License-Identifier: MIT
/*
 * The guest's test program: runs one test, or helps the script that runs them.
 *   vmtest TEST      run a test
 *   vmtest mark N    read block N of the mark area, which the host finds in QEMU's trace
 *   vmtest bar       print where the GPU's memory is
 *   vmtest idle      wait until the module holds nothing; fails when that does not happen
 */
#include "kept.h"

struct test {
	const char *name;
	int (*run)(void);
};

static const struct test tests[] = {
	{ "io_pread", test_io_pread },
	{ "io_uring", test_io_uring },
	{ "io_unaligned", test_io_unaligned },
	{ "io_ext4", test_io_ext4 },
	{ "io_registered", test_io_registered },
	{ "io_errors", test_io_errors },
	{ "io_raid", test_io_raid },
	{ "bounced", test_bounced },
	{ "route", test_route },
	{ "bad_arguments", test_bad_arguments },
	{ "privilege", test_privilege },
	{ "other_owner", test_other_owner },
	{ "map_rules", test_map_rules },
	{ "map_parts", test_map_parts },
	{ "map_fork", test_map_fork },
	{ "map_race", test_map_race },
	{ "map_race_shared", test_map_race_shared },
	{ "munmap_in_flight", test_munmap_in_flight },
	{ "kill_in_flight", test_kill_in_flight },
	{ "close_in_flight", test_close_in_flight },
	{ "unpin_in_flight", test_unpin_in_flight },
	{ "revoke", test_revoke },
	{ "revoke_in_flight", test_revoke_in_flight },
	{ "revoke_loop", test_revoke_loop },
	{ "revoke_spliced", test_revoke_spliced },
	{ "no_persistent", test_no_persistent },
	{ "rules_errors", test_rules_errors },
	{ "rules_kinds", test_rules_kinds },
	{ "rules_room", test_rules_room },
	{ "rules_put", test_rules_put },
	{ "rules_missed", test_rules_missed },
	{ "rules_reused", test_rules_reused },
	{ "persistent", test_persistent },
	{ "shared", test_shared },
	{ "provider_faults", test_provider_faults },
	{ "unbind_in_flight", test_unbind_in_flight },
	{ "unload_refused", test_unload_refused },
	{ "bar_places", test_bar_places },
	{ "bar_sections", test_bar_sections },
	{ "bar_unbind_loop", test_bar_unbind_loop },
	{ "taken_close", test_taken_close },
	{ "taken_in_flight", test_taken_in_flight },
	{ "taken_exit", test_taken_exit },
	{ "taken_heir", test_taken_heir },
	{ "fuzz", test_fuzz },
	{ "owner_fork", test_owner_fork },
	{ "owner_passed", test_owner_passed },
	{ "owner_worker", test_owner_worker },
	{ "owner_exec", test_owner_exec },
	{ "owner_killed", test_owner_killed },
	{ "owner_exit", test_owner_exit },
	{ "owner_threads", test_owner_threads },
	{ "owner_unload", test_owner_unload },
	{ "holder_pipe", test_holder_pipe },
	{ "holder_fuse", test_holder_fuse },
	{ "holder_vfio", test_holder_vfio },
	{ "storm", test_storm },
	{ "engine_ext4", test_engine_ext4 },
	{ "engine_xfs", test_engine_xfs },
	{ "engine_batch", test_engine_batch },
	{ "engine_holes", test_engine_holes },
	{ "engine_freed", test_engine_freed },
	{ "engine_fallback", test_engine_fallback },
	{ "engine_refused", test_engine_refused },
	{ "engine_tool", test_engine_tool },
	{ "engine_raid", test_engine_raid },
	{ "engine_permission", test_engine_permission },
	{ "engine_mirror", test_engine_mirror },
	{ "engine_partition", test_engine_partition },
	{ "engine_dm", test_engine_dm },
	{ "engine_loop", test_engine_loop },
	{ "engine_multipath", test_engine_multipath },
	{ "engine_btrfs", test_engine_btrfs },
	{ "engine_journal", test_engine_journal },
	{ "engine_inline", test_engine_inline },
	{ "engine_reflink", test_engine_reflink },
	{ "engine_far", test_engine_far },
	{ "route_acs", test_route_acs },
	{ "engine_errors", test_engine_errors },
	{ "engine_unplugged", test_engine_unplugged },
	{ "engine_unplugged_fs", test_engine_unplugged_fs },
	{ "engine_killed", test_engine_killed },
	{ "engine_freed_loop", test_engine_freed_loop },
	{ "engine_unload", test_engine_unload },
	{ "engine_gpu_gone", test_engine_gpu_gone },
	{ "fabric_tcp", test_fabric_tcp },
	{ "fabric_rdma", test_fabric_rdma },
	{ "fabric_dma", test_fabric_dma },
	{ "fabric_dma_refused", test_fabric_dma_refused },
	{ "fabric_drop_dma", test_fabric_drop_dma },
	{ "fabric_drop_tcp", test_fabric_drop_tcp },
	{ "fabric_drop_rdma", test_fabric_drop_rdma },
	{ "engine_stream", test_engine_stream },
	{ "engine_cufile", test_engine_cufile },
	{ "engine_cost", test_engine_cost },
	{ "example_pin_mmap", test_example_pin_mmap },
	{ "example_file_to_gpu", test_example_file_to_gpu },
	{ "prove", test_prove },
	{ "prove_bounced", test_prove_bounced },
	{ "prove_wrong_data", test_prove_wrong_data },
	{ "prove_wrong_memory", test_prove_wrong_memory },
	{ "prove_log", test_prove_log },
	{ "prove_stopped", test_prove_stopped },
	{ "nvme_refused", test_nvme_refused },
	{ "nvme_kmod_io", test_nvme_kmod_io },
	{ "nvme_kmod_rules", test_nvme_kmod_rules },
	{ "nvme_kmod_limits", test_nvme_kmod_limits },
	{ "nvme_kmod_confined", test_nvme_kmod_confined },
	{ "nvme_kmod_intx", test_nvme_kmod_intx },
	{ "nvme_kmod_begin", test_nvme_kmod_begin },
	{ "nvme_kmod_fuzz", test_nvme_kmod_fuzz },
	{ "nvme_kmod_kill", test_nvme_kmod_kill },
	{ "nvme_kmod_freed", test_nvme_kmod_freed },
	{ "nvme_kmod_unbind", test_nvme_kmod_unbind },
	{ "nvme_kmod_back", test_nvme_kmod_back },
	{ "nvme_kmod_driver", test_nvme_kmod_driver },
	{ "nvme_kmod_driver_freed", test_nvme_kmod_driver_freed },
	{ "nvme_kmod_warps", test_nvme_kmod_warps },
	{ "nvme_serve_io", test_nvme_serve_io },
	{ "nvme_serve_kill", test_nvme_serve_kill },
	{ "nvme_serve_rules", test_nvme_serve_rules },
	{ "nvme_serve_silent", test_nvme_serve_silent },
	{ "nvme_vfio_driver", test_nvme_vfio_driver },
	{ "nvme_vfio_io", test_nvme_vfio_io },
	{ "nvme_vfio_kill", test_nvme_vfio_kill },
	{ "nvme_vfio_back", test_nvme_vfio_back },
	{ "nvme_kmod_engine", test_nvme_kmod_engine },
	{ "nvme_kmod_engine_staged", test_nvme_kmod_engine_staged },
	{ "nvme_kmod_engine_refused", test_nvme_kmod_engine_refused },
	{ "nvme_kmod_engine_freed", test_nvme_kmod_engine_freed },
	{ "nvme_vfio_engine", test_nvme_vfio_engine },
};

static int mark(long number)
{
	int fd = drive_open("raw0", O_RDONLY | O_DIRECT);
	void *block = host_alloc(4096);

	return pread(fd, block, 512, (off_t)RAW_MARKS + number * 512) == 512 ? 0 : 1;
}

static int bar(void)
{
	struct simgpu_state state = gpu_state(gpu_open());

	printf("BAR %llu %llu\n", (unsigned long long)state.bar_start,
	       (unsigned long long)state.bar_bytes);
	return 0;
}

static int idle(void)
{
	struct peerlane_counters now;
	struct simgpu_state gpu;
	unsigned int kept = nr_kept_for_ever();
	int dev = dev_open();
	int i;

	for (i = 0; i < 200; i++) {
		now = dev_counters(dev);
		gpu = gpu_state(gpu_open());
		/* This program has the device open itself. */
		if (now.files == 1 && now.pins == kept && !now.pinned_bytes == !kept &&
		    !now.mappings && now.lingering == kept && !now.uses && !gpu.nr_pins &&
		    gpu.nr_persistent == kept && gpu.nr_allocs == kept && nvme_idle())
			return 0;
		sleep_ms(50);
	}
	nvme_held();
	printf("still held: files %llu pins %llu bytes %llu mappings %llu lingering %llu, GPU: "
	       "pins %llu persistent %llu allocations %llu\n",
	       (unsigned long long)now.files, (unsigned long long)now.pins,
	       (unsigned long long)now.pinned_bytes, (unsigned long long)now.mappings,
	       (unsigned long long)now.lingering, (unsigned long long)gpu.nr_pins,
	       (unsigned long long)gpu.nr_persistent, (unsigned long long)gpu.nr_allocs);
	return 1;
}

int main(int argc, char **argv)
{
	size_t i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && !strcmp(argv[1], "mark"))
		return mark(strtol(argv[2], NULL, 10));
	if (argc == 2 && !strcmp(argv[1], "bar"))
		return bar();
	if (argc == 2 && !strcmp(argv[1], "idle"))
		return idle();
	for (i = 0; argc == 2 && i < sizeof(tests) / sizeof(*tests); i++)
		if (!strcmp(argv[1], tests[i].name))
			return tests[i].run();
	printf("no such test\n");
	return 2;
}
