#include "collectives/bootstrap/sub_group_connector.hpp"

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

std::unique_ptr<Transport> Founder::found(const std::string& name, int rank,
                                          const std::vector<Transport::Contact>& members) {
  require(entrance_.has_value(), "a rank must open its door before it founds a sub-group");
  RankInfo rank_info = rank_info_;
  rank_info.rank = rank;
  rank_info.size = static_cast<int>(members.size());
  rank_info.job_key +=
      "/" + name;  // a rank of another sub-group that comes to the wrong door is turned away
  std::vector<Address> addresses(members.size());
  for (std::size_t r = 0; r < members.size(); ++r)
    std::memcpy(&addresses[r], members[r].data(), sizeof(Address));
  Mesh mesh = entrance_->meet(rank_info, std::move(addresses));
  entrance_.reset();
  return make_(rank_info, std::move(mesh));
}

}  // namespace ringside::collectives
