#include "collectives/calls/host_and_device.hpp"

#include "collectives/bootstrap/connections.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::collectives {
namespace {

class HostAndDevice final : public Backend {
 public:
  HostAndDevice(std::unique_ptr<Backend> host, std::unique_ptr<Backend> device,
                IsDeviceMemory is_device_memory)
      : host_(std::move(host)),
        device_(std::move(device)),
        is_device_memory_(std::move(is_device_memory)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string name() const override { return host_->name() + "+" + device_->name(); }

  void run(const Call& call, const void* input, void* output, const BlockBegins& begins) override {
    const bool on_device = is_device_call(call, input, output);
    Backend &one = on_device ? *device_ : *host_, &other = on_device ? *host_ : *device_;
    try {
      one.run(call, input, output, begins);
    } catch (const std::exception& error) {
      other.abort(error.what());  // a peer may wait there
      throw;
    }
  }

  void abort(const std::string& cause) noexcept override {
    host_->abort(cause);
    device_->abort(cause);
  }
  void interrupt(const std::string& cause) noexcept override {
    host_->interrupt(cause);
    device_->interrupt(cause);
  }

  Traffic traffic() const override {
    const Traffic host = host_->traffic(), device = device_->traffic();
    return {host.messages_sent + device.messages_sent,
            host.payload_bytes_sent + device.payload_bytes_sent};
  }

  void set_names(const RankNames& names) override {
    host_->set_names(names);
    device_->set_names(names);
  }

  Endpoint listen() override { return host_->listen(); }
  std::unique_ptr<Backend> connect_sub_group(const std::string& sub_group, int rank,
                                             const std::vector<Endpoint>& members) override {
    return host_->connect_sub_group(sub_group, rank, members);
  }
  Streams connect_streams(const std::string& sub_group, int rank,
                          const std::vector<Endpoint>& members) override {
    return host_->connect_streams(sub_group, rank, members);
  }

 private:
  // Checks the buffer that every rank uses: another may be empty or unused on some ranks, which
  // would then choose differently.
  bool is_device_call(const Call& call, const void* input, const void* output) const {
    // A block of 0 elements has no address: a device's backend refuses these calls, so the host's
    // gets them wherever no buffer of this rank is memory of the device.
    if (call.unequal)
      return (input && is_device_memory_(input)) || (output && is_device_memory_(output));
    if (call.count == 0) return false;
    switch (call.collective) {
      case Collective::barrier:
        return false;
      case Collective::reduce_scatter:
      case Collective::reduce:
      case Collective::gather:
        return is_device_memory_(input);
      case Collective::scatter:
        return is_device_memory_(output);
      case Collective::point_to_point:
        return is_device_memory_(call.root == rank() ? input : output);
      default:
        return is_device_memory_(output);
    }
  }

  std::unique_ptr<Backend> host_, device_;
  IsDeviceMemory is_device_memory_;
};

}  // namespace

std::unique_ptr<Backend> make_host_and_device_backend(std::unique_ptr<Backend>&& host,
                                                      std::unique_ptr<Backend>&& device,
                                                      IsDeviceMemory is_device_memory) {
  require(
      host->rank() == device->rank() && host->size() == device->size(),
      "a backend for host and device: expected the same rank and size of both, got rank {} of {} "
      "over {} and rank {} of {} over {}",
      host->rank(), host->size(), host->name(), device->rank(), device->size(), device->name());
  return std::make_unique<HostAndDevice>(std::move(host), std::move(device),
                                         std::move(is_device_memory));
}

}  // namespace ringside::collectives
