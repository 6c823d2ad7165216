// Guardian
