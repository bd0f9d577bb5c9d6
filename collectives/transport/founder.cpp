#include "collectives/transport/founder.hpp"

#include <cstring>

#include "base/error.hpp"

namespace ringside::collectives {

static_assert(sizeof(Address) <= sizeof(Transport::Contact));

Transport::Contact Founder::open_door() {
  entrance_.emplace(own_);
  Transport::Contact contact{};
  std::memcpy(contact.data(), &entrance_->address(), sizeof(Address));
  return contact;
}

std::unique_ptr<Transport> Founder::found(const std::string& name, int rank, const std::vector<Transport::Contact>& members) {
  require(entrance_.has_value(), "a rank must open its door before it founds a sub-group");
  Place place = place_;
  place.rank = rank;
  place.size = static_cast<int>(members.size());
  place.job_key += "/" + name;  // a rank of another sub-group that comes to the wrong door is turned away
  std::vector<Address> addresses(members.size());
  for (std::size_t r = 0; r < members.size(); ++r) std::memcpy(&addresses[r], members[r].data(), sizeof(Address));
  Mesh mesh = entrance_->meet(place, std::move(addresses));
  entrance_.reset();
  return make_(place, std::move(mesh));
}

}  // namespace ringside::collectives
