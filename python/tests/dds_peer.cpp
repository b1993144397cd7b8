// A participant of DDS that shares no code with the bridge: eProsima Fast DDS. It writes and reads encoded samples as
// they are; what is in them, another encoder makes and reads (rosbags, in Python).
//
// dds_peer write|read DOMAIN ADDRESS PEER TOPIC TYPE TYPEHASH reliable|best_effort
//   ADDRESS: its own. PEER: who is asked by unicast. It knows of nobody else, and uses no multicast.
// write: samples come on standard input, each as its length (32 bits, little-endian) and its bytes. One is sent when
//   somebody reads the topic, and each is kept for readers that come later.
// read: samples go to standard output, as they come on standard input.
// Lines on standard error: `matched`, `unmatched`, and of each writer `writer TOPIC TYPE USER_DATA`.

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/domain/DomainParticipantListener.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/DataWriterListener.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/DataReaderListener.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/dds/log/Log.hpp>
#include <fastdds/dds/log/StdoutErrConsumer.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastrtps/utils/IPLocator.h>
#include <fastrtps/utils/md5.h>

namespace fast = eprosima::fastdds::dds;
namespace rtps = eprosima::fastrtps::rtps;

namespace {

constexpr uint32_t SAMPLE_BYTES_MAX = 16u << 20;

using Sample = std::vector<unsigned char>;

/// A type of which the library knows the name alone.
/// `mez::Frame` has a key, its first field; the others have none.
class Encoded : public fast::TopicDataType {
public:
    explicit Encoded(const std::string& name) {
        setName(name.c_str());
        m_typeSize = SAMPLE_BYTES_MAX;
        m_isGetKeyDefined = name == "mez::Frame";
        auto_fill_type_object(false);
        auto_fill_type_information(false);
    }
    bool serialize(void* data, rtps::SerializedPayload_t* payload) override {
        const auto& sample = *static_cast<Sample*>(data);
        if (sample.size() > payload->max_size) return false;
        std::memcpy(payload->data, sample.data(), sample.size());
        payload->length = static_cast<uint32_t>(sample.size());
        payload->encapsulation = CDR_LE;
        return true;
    }
    bool deserialize(rtps::SerializedPayload_t* payload, void* data) override {
        static_cast<Sample*>(data)->assign(payload->data, payload->data + payload->length);
        return true;
    }
    std::function<uint32_t()> getSerializedSizeProvider(void* data) override {
        return [data] { return static_cast<uint32_t>(static_cast<Sample*>(data)->size()); };
    }
    void* createData() override { return new Sample; }
    void deleteData(void* data) override { delete static_cast<Sample*>(data); }
    bool getKey(void* data, rtps::InstanceHandle_t* handle, bool) override {
        const auto& sample = *static_cast<Sample*>(data);
        constexpr size_t TEXT = 8;
        if (!m_isGetKeyDefined || sample.size() < TEXT) return false;
        uint32_t size = 0;
        std::memcpy(&size, &sample[TEXT - 4], 4);
        if (size > sample.size() - TEXT) return false;
        // A key that may be longer than 16 bytes is the MD5 of its big-endian encoding.
        std::vector<unsigned char> key = {static_cast<unsigned char>(size >> 24), static_cast<unsigned char>(size >> 16),
                                          static_cast<unsigned char>(size >> 8), static_cast<unsigned char>(size)};
        key.insert(key.end(), sample.begin() + TEXT, sample.begin() + TEXT + size);
        MD5 md5;
        md5.init();
        md5.update(key.data(), static_cast<unsigned int>(key.size()));
        md5.finalize();
        std::memcpy(handle->value, md5.digest, 16);
        return true;
    }
};

std::mutex lock;
std::condition_variable changed;
int matched = 0;

void note_match(int now) {
    const std::lock_guard<std::mutex> held(lock);
    std::fprintf(stderr, now > matched ? "matched\n" : "unmatched\n");
    matched = now;
    changed.notify_all();
}

class Discovery : public fast::DomainParticipantListener {
    void on_publisher_discovery(fast::DomainParticipant*, rtps::WriterDiscoveryInfo&& found) override {
        if (found.status != rtps::WriterDiscoveryInfo::DISCOVERED_WRITER) return;
        const auto& told = found.info.m_qos.m_userData;
        const std::string text(told.begin(), told.end());
        std::fprintf(stderr, "writer %s %s %s\n", found.info.topicName().c_str(), found.info.typeName().c_str(),
                     text.c_str());
    }
};

class Readers : public fast::DataWriterListener {
    void on_publication_matched(fast::DataWriter*, const fast::PublicationMatchedStatus& status) override {
        note_match(status.current_count);
    }
};

class Samples : public fast::DataReaderListener {
    void on_subscription_matched(fast::DataReader*, const fast::SubscriptionMatchedStatus& status) override {
        note_match(status.current_count);
    }
    void on_data_available(fast::DataReader* reader) override {
        Sample sample;
        fast::SampleInfo info;
        while (reader->take_next_sample(&sample, &info) == ReturnCode_t::RETCODE_OK) {
            if (!info.valid_data) continue;
            const auto size = static_cast<uint32_t>(sample.size());
            std::fwrite(&size, sizeof size, 1, stdout);
            std::fwrite(sample.data(), 1, size, stdout);
            std::fflush(stdout);
        }
    }
};

fast::DomainParticipant* enter(uint32_t domain, const char* address, const char* peer) {
    fast::DomainParticipantQos qos;
    qos.transport().use_builtin_transports = false;
    auto udp = std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>();
    udp->interfaceWhiteList.push_back(address);
    udp->sendBufferSize = udp->receiveBufferSize = 4u << 20;
    qos.transport().user_transports.push_back(udp);
    // A list of own addresses, and no list of groups: no multicast.
    rtps::Locator_t own;
    rtps::IPLocator::setIPv4(own, address);
    qos.wire_protocol().builtin.metatrafficUnicastLocatorList.push_back(own);
    rtps::Locator_t asked;
    rtps::IPLocator::setIPv4(asked, peer);
    qos.wire_protocol().builtin.initialPeersList.push_back(asked);
    return fast::DomainParticipantFactory::get_instance()->create_participant(
        domain, qos, new Discovery, fast::StatusMask::none());
}

template <typename Qos>
void set(Qos& qos, const std::string& hash, bool is_reliable) {
    qos.reliability().kind = is_reliable ? fast::RELIABLE_RELIABILITY_QOS : fast::BEST_EFFORT_RELIABILITY_QOS;
    qos.durability().kind = fast::TRANSIENT_LOCAL_DURABILITY_QOS;
    qos.history().kind = fast::KEEP_LAST_HISTORY_QOS;
    qos.history().depth = 10;
    qos.endpoint().history_memory_policy = rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
    const std::string told = "typehash=" + hash + ";";
    qos.user_data().assign(told.begin(), told.end());
}

// In order: others learn at once that it has gone.
int leave(fast::DomainParticipant* participant) {
    participant->set_listener(nullptr);
    participant->delete_contained_entities();
    fast::DomainParticipantFactory::get_instance()->delete_participant(participant);
    return 0;
}

bool take(void* to, size_t size) { return std::fread(to, 1, size, stdin) == size; }

}  // namespace

int main(int count, char** words) {
    if (count != 9) return 2;
    // Standard output is for samples; what the library has to say would go there.
    auto log = std::make_unique<fast::StdoutErrConsumer>();
    log->stderr_threshold(fast::Log::Kind::Info);
    fast::Log::ClearConsumers();
    fast::Log::RegisterConsumer(std::move(log));
    const bool is_writer = std::string(words[1]) == "write", is_reliable = std::string(words[8]) == "reliable";
    auto* participant = enter(static_cast<uint32_t>(std::atoi(words[2])), words[3], words[4]);
    if (participant == nullptr) return 3;
    fast::TypeSupport type(new Encoded(words[6]));
    type.register_type(participant);
    auto* topic = participant->create_topic(words[5], words[6], fast::TOPIC_QOS_DEFAULT);
    if (is_writer) {
        Readers readers;
        auto qos = fast::DATAWRITER_QOS_DEFAULT;
        set(qos, words[7], is_reliable);
        qos.publish_mode().kind = fast::ASYNCHRONOUS_PUBLISH_MODE;
        auto* publisher = participant->create_publisher(fast::PUBLISHER_QOS_DEFAULT);
        auto* writer = publisher->create_datawriter(topic, qos, &readers);
        for (uint32_t size; take(&size, sizeof size) && size <= SAMPLE_BYTES_MAX;) {
            Sample sample(size);
            if (!take(sample.data(), size)) break;
            std::unique_lock<std::mutex> held(lock);
            changed.wait(held, [] { return matched > 0; });
            held.unlock();
            writer->write(&sample);
        }
        return leave(participant);
    }
    Samples samples;
    auto qos = fast::DATAREADER_QOS_DEFAULT;
    set(qos, words[7], is_reliable);
    auto* subscriber = participant->create_subscriber(fast::SUBSCRIBER_QOS_DEFAULT);
    subscriber->create_datareader(topic, qos, &samples);
    // Until whoever started it closes standard input.
    for (int byte = 0; byte != EOF;) byte = std::getchar();
    return leave(participant);
}
