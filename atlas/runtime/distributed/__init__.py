"""One model split over several processes and machines, by torch.distributed: rank 0 serves, all ranks compute."""
